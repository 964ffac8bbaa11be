#!/usr/bin/env python3
"""Writes a Hugging Face directory of a llama's shape with random weights in bf16, for measurements of loading: config.json
and safetensors, sharded as transformers does.

    python3 bench/make_directory.py models/8b --shape 8b
"""
import argparse
import array
import json
import pathlib
import random
import struct

# width, ffn, layers, heads, kv heads, vocabulary, tied
SHAPES = {"1b": (2048, 8192, 16, 32, 8, 128256, True), "8b": (4096, 14336, 32, 32, 8, 128256, False),
          "20m": (256, 1024, 2, 4, 2, 32000, False)}
CHUNK = 1 << 20


def tensors_of(width, ffn, layers, heads, kv_heads, vocab, tied):
    kv = width // heads * kv_heads
    shapes = {"model.embed_tokens.weight": [vocab, width]}
    for layer in range(layers):
        block = f"model.layers.{layer}."
        shapes |= {f"{block}self_attn.q_proj.weight": [width, width], f"{block}self_attn.k_proj.weight": [kv, width],
                   f"{block}self_attn.v_proj.weight": [kv, width], f"{block}self_attn.o_proj.weight": [width, width],
                   f"{block}mlp.gate_proj.weight": [ffn, width], f"{block}mlp.up_proj.weight": [ffn, width],
                   f"{block}mlp.down_proj.weight": [width, ffn], f"{block}input_layernorm.weight": [width],
                   f"{block}post_attention_layernorm.weight": [width]}
    shapes["model.norm.weight"] = [width]
    if not tied:
        shapes["lm_head.weight"] = [vocab, width]
    return shapes


def bytes_of(shape):
    count = 2
    for size in shape:
        count *= size
    return count


def noise():
    """A million numbers around 0 in bf16; each tensor takes them from another place on."""
    source = random.Random(1)
    wide = array.array("f", (source.gauss(0, 0.02) for _ in range(CHUNK))).tobytes()
    return b"".join(wide[i + 2:i + 4] for i in range(0, len(wide), 4))


def write_shard(path, shapes, block, source):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + bytes_of(shape)]}
        end += bytes_of(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            left = bytes_of(shape)
            while left > 0:
                begin = 2 * source.randrange(CHUNK)
                part = block[begin:begin + left]
                file.write(part)
                left -= len(part)
    return end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--shard-bytes", type=int, default=5 * 10 ** 9)
    options = parser.parse_args()
    width, ffn, layers, heads, kv_heads, vocab, tied = SHAPES[options.shape]
    options.out.mkdir(parents=True)
    shards = [{}]
    for name, shape in tensors_of(*SHAPES[options.shape]).items():
        if shards[-1] and sum(map(bytes_of, shards[-1].values())) + bytes_of(shape) > options.shard_bytes:
            shards.append({})
        shards[-1][name] = shape
    block, source = noise(), random.Random(2)
    weight_map, total = {}, 0
    for number, shapes in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        total += write_shard(options.out / file, shapes, block, source)
        weight_map |= dict.fromkeys(shapes, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (options.out / "model.safetensors.index.json").write_text(json.dumps(index))
    (options.out / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": width,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "max_position_embeddings": 8192, "rope_theta": 500000.0, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": tied, "torch_dtype": "bfloat16"}, indent=2))
    print(f"{options.out}: {total // 2} parameters, {total} bytes in {len(shards)} file(s)")


if __name__ == "__main__":
    main()
