#!/usr/bin/env python3
"""Families of Hugging Face's models on a GPU: Tandem beside torch.compile of transformers' own class, in one run.

Each shape is trained for a few steps with AdamW on random tokens: by Tandem in bf16 (fp32 masters), and by transformers
(sdpa attention, autocast to bf16, fused AdamW) under torch.compile. Prints tokens per second, bytes, and their ratios.

    bench/families.py --tandem build/release/bin/tandem [--only qwen3] [--steps 6]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROPE = {"rope_type": "default", "rope_theta": 1000000.0}
SHAPES = {
    "qwen3-1.7b": {
        "model": {"layers": 28, "width": 2048, "heads": 16, "kv_heads": 8, "head": 128, "ffn": 6144, "vocab": 151936,
                  "rope_theta": 1000000, "tied": True, "qk_norm": "head", "norm_eps": 1e-6},
        "theirs": ("qwen3", {"head_dim": 128, "rope_parameters": ROPE}), "context": 4096, "batch": 4},
    "gemma3-1b": {
        "model": {"layers": 26, "width": 1152, "heads": 4, "kv_heads": 1, "head": 256, "ffn": 6912, "vocab": 262144,
                  "rope_theta": 1000000, "rope_local_theta": 10000, "tied": True, "qk_norm": "head", "norm_eps": 1e-6,
                  "norm_plus_one": True, "norm_place": "both", "activation": "gelu", "window": 512,
                  "full_layers": [5, 11, 17, 23], "embed_scale": 1152 ** 0.5, "attention_scale": 0.0625},
        "theirs": ("gemma3_text", {"head_dim": 256, "sliding_window": 512, "query_pre_attn_scalar": 256}),
        "context": 4096, "batch": 4},
    "llama-8b-8-layers": {
        "model": {"layers": 8, "width": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "tied": False,
                  "rope_theta": 500000, "norm_eps": 1e-5},
        "theirs": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
        "context": 8192, "batch": 2},
}

PEER = """
import json, statistics, sys, time, torch
from transformers import AutoConfig, AutoModelForCausalLM
kind, keys, batch, context, steps = json.loads(sys.argv[1])
config = AutoConfig.for_model(kind, **keys)
model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
compiled = torch.compile(model)
ids = torch.randint(0, config.vocab_size, (batch, context), device="cuda")
times = []
for step in range(steps + 3):
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
print(json.dumps({"step_s": statistics.median(times[3:]), "bytes": torch.cuda.max_memory_allocated()}))
"""


def ours(program, shape, steps, folder, precision):
    content = {"name": "families", "device": "cuda", "precision": precision,
               "model": {"family": "llama", "context": shape["context"], **shape["model"]},
               "train": {"steps": steps, "batch": shape["batch"], "micro_batch": shape["batch"], "eval_every": 0},
               "checkpoint": {"every": 0}}
    file = pathlib.Path(folder) / "config.yaml"
    file.write_text(json.dumps(content))
    done = subprocess.run([program, "bench", file, "--steps", str(steps), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    made = json.loads(done.stdout.strip().splitlines()[-1])
    return {"step_s": made["step_ms"] / 1000, "bytes": sum(size for name, size in made["planned"].items() if name != "host")}


def theirs(shape, steps):
    kind, keys = shape["theirs"]
    model = shape["model"]
    keys = {"vocab_size": model["vocab"], "hidden_size": model["width"], "num_hidden_layers": model["layers"],
            "num_attention_heads": model["heads"], "num_key_value_heads": model["kv_heads"],
            "intermediate_size": model["ffn"], "max_position_embeddings": shape["context"],
            "tie_word_embeddings": model["tied"], "rms_norm_eps": model["norm_eps"], **keys}
    done = subprocess.run([sys.executable, "-c", PEER, json.dumps([kind, keys, shape["batch"], shape["context"], steps])],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--only", default="", help="shapes whose names contain it")
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    for name, shape in SHAPES.items():
        if options.only not in name:
            continue
        tokens = shape["batch"] * shape["context"]
        peer = theirs(shape, options.steps)
        if isinstance(peer, str):
            print(f"{name}: transformers: {peer}", flush=True)
            continue
        print(f"{name}: transformers {tokens / peer['step_s']:.0f} tokens/s, {peer['bytes'] / 2**30:.1f} GiB", flush=True)
        for precision in ("bf16", "fp8"):
            with tempfile.TemporaryDirectory() as folder:
                mine = ours(options.tandem, shape, options.steps, folder, precision)
            if isinstance(mine, str):
                print(f"{name} {precision}: {mine}", flush=True)
                continue
            print(f"{name} {precision}: {tokens / mine['step_s']:.0f} tokens/s, {peer['step_s'] / mine['step_s']:.3f} of it; "
                  f"{mine['bytes'] / 2**30:.1f} GiB, {mine['bytes'] / peer['bytes']:.3f} of it", flush=True)


if __name__ == "__main__":
    main()
