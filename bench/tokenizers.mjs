// Hugging Face's tokenizers on the lines of a file, a JSON string each: how many ids each has, and their sum, into
// OUT; prints the seconds of a core that encoding took.
//   node tokenizers.mjs MODULES tokenizer.json LINES OUT
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

const [modules, file, lines, out] = process.argv.slice(2);
const { Tokenizer } = createRequire(resolve(modules, "package.json"))("tokenizers");
const tokenizer = Tokenizer.fromFile(file);
const texts = readFileSync(lines, "utf8").split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
const begin = process.cpuUsage();
const encodings = [];
for (let first = 0; first < texts.length; first += 256) {
  const batch = texts.slice(first, first + 256);
  encodings.push(...(await tokenizer.encodeBatch(batch, { addSpecialTokens: false })));
}
const took = process.cpuUsage(begin);
const seconds = (took.user + took.system) / 1e6;
const shown = encodings.map((encoding) => {
  const ids = encoding.getIds();
  return `${ids.length} ${ids.reduce((sum, id) => sum + id, 0)}\n`;
});
writeFileSync(out, shown.join(""));
console.log(seconds);
