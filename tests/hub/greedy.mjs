// node greedy.mjs MODULES FILE.gguf IDS COUNT TEXT: what llama.cpp writes after the tokens IDS, the likeliest each time,
// and the tokens of a text.
import path from "node:path";
import {pathToFileURL} from "node:url";

const [, , modules, file, ids, count, text] = process.argv;
const library = path.join(modules, "node_modules", "node-llama-cpp", "dist", "index.js");
const {getLlama} = await import(pathToFileURL(library));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: 1});
const model = await llama.loadModel({modelPath: file, gpuLayers: 0});
const context = await model.createContext({contextSize: 64, batchSize: 64, flashAttention: false, threads: 1});
const written = [];
const tokens = ids.split(",").map(Number);
for await (const token of context.getSequence().evaluate(tokens, {temperature: 0, yieldEogToken: true})) {
    written.push(token);
    if (written.length >= Number(count)) break;
}
console.log(JSON.stringify({written, tokens: model.tokenize(text, false)}));
process.exit(0);
