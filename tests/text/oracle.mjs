// Hugging Face's own tokenizers on the lines of a file: a JSON string a line in, {"ids", "text"} a line out.
//   node oracle.mjs MODULES tokenizer.json LINES OUT
import { createRequire } from "node:module";
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { resolve } from "node:path";

const [modules, file, lines, out] = process.argv.slice(2);
const { Tokenizer } = createRequire(resolve(modules, "package.json"))("tokenizers");
const tokenizer = Tokenizer.fromFile(file);
const target = openSync(out, "w");
for (const line of readFileSync(lines, "utf8").split("\n")) {
  if (line === "") continue;
  const encoding = await tokenizer.encode(JSON.parse(line), null, { addSpecialTokens: false });
  const ids = encoding.getIds();
  const text = ids.length > 0 ? await tokenizer.decode(ids, false) : "";
  writeSync(target, JSON.stringify({ ids, text }) + "\n");
}
closeSync(target);
