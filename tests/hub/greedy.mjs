// node greedy.mjs MODULES IDS TEXT FILE.gguf:COUNT...: for each file a line of JSON: what llama.cpp writes after the tokens
// IDS, the likeliest each time, the probability of every token after all of these, and the tokens of a text.
import path from "node:path";
import {pathToFileURL} from "node:url";

const [, , modules, ids, text, ...files] = process.argv;
const library = path.join(modules, "node_modules", "node-llama-cpp", "dist", "index.js");
const {getLlama} = await import(pathToFileURL(library));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: 1});
// Keys and values stay whole numbers of 32 bits, so that only products round.
const options = {contextSize: 128, batchSize: 128, flashAttention: false, threads: 1, experimentalKvCacheKeyType: "F32",
                 experimentalKvCacheValueType: "F32"};
const plain = {temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1, yieldEogToken: true};
const tokens = ids.split(",").map(Number);

async function run(file, count) {
    const model = await llama.loadModel({modelPath: file, gpuLayers: 0});
    const context = await model.createContext(options);
    const written = [];
    for await (const token of context.getSequence().evaluate(tokens, {temperature: 0, yieldEogToken: true})) {
        written.push(token);
        if (written.length >= count) break;
    }
    const again = await model.createContext(options);
    const sequence = again.getSequence();
    let likely = [];
    for await (const {probabilities} of sequence.evaluateWithMetadata([...tokens, ...written], {probabilities: true}, plain)) {
        likely = [...probabilities];
        break;
    }
    return {written, likely, tokens: model.tokenize(text, false)};
}

for (const file of files) {
    const colon = file.lastIndexOf(":");
    try {
        console.log(JSON.stringify(await run(file.slice(0, colon), Number(file.slice(colon + 1)))));
    } catch (error) {
        console.log(JSON.stringify({error: String(error)}));
    }
}
process.exit(0);
