"""Small Hugging Face directories, written by hand: config.json, safetensors, and tokenizer files whose contents only
have to come back byte for byte. Every tensor has values of its own, norms and biases too.

    python3 tests/hub/tiny_models.py gpt2 DIR     writes one
"""

import array
import json
import pathlib
import random
import struct
import sys

HIDDEN, LAYERS, HEADS, KV_HEADS, FFN, VOCAB, POSITIONS = 32, 4, 4, 2, 48, 300, 40

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def llama_config(model_type, **more):
    return {"architectures": ["SomeForCausalLM"], "model_type": model_type, "vocab_size": VOCAB, "hidden_size": HIDDEN,
            "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "max_position_embeddings": POSITIONS, "hidden_act": "silu",
            "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2, "transformers_version": "4.40.0", **more}


CONFIGS = {
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": VOCAB, "n_embd": HIDDEN,
             "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS, "n_ctx": POSITIONS,
             "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "bos_token_id": 0, "eos_token_id": 0},
    "llama": llama_config("llama", rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="bfloat16"),
    "qwen2": llama_config("qwen2", rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
                          tie_word_embeddings=True, use_sliding_window=False, sliding_window=4096, dtype="float32"),
    "qwen3": llama_config("qwen3", head_dim=16, rope_theta=1000000.0, tie_word_embeddings=True, torch_dtype="float16"),
    "gemma2": llama_config("gemma2", head_dim=16, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh",
                           attn_logit_softcapping=2.0, final_logit_softcapping=12.0, sliding_window=8, torch_dtype="float16"),
    "gemma3_text": llama_config("gemma3_text", head_dim=16, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh",
                                num_hidden_layers=7, sliding_window=8, rope_theta=1000000.0, rope_local_base_freq=10000.0,
                                rope_scaling={"rope_type": "linear", "factor": 8.0}, torch_dtype="float16"),
}


def gpt2_tensors(config, prefix="transformer."):
    tensors = {f"{prefix}wte.weight": [VOCAB, HIDDEN], f"{prefix}wpe.weight": [config["n_positions"], HIDDEN]}
    for layer in range(LAYERS):
        block = f"{prefix}h.{layer}."
        for name, shape in {"attn.c_attn": [HIDDEN, 3 * HIDDEN], "attn.c_proj": [HIDDEN, HIDDEN],
                            "mlp.c_fc": [HIDDEN, 4 * HIDDEN], "mlp.c_proj": [4 * HIDDEN, HIDDEN]}.items():
            tensors[f"{block}{name}.weight"], tensors[f"{block}{name}.bias"] = shape, shape[1:]
        for norm in ("ln_1", "ln_2"):
            tensors[f"{block}{norm}.weight"] = tensors[f"{block}{norm}.bias"] = [HIDDEN]
    tensors[f"{prefix}ln_f.weight"] = tensors[f"{prefix}ln_f.bias"] = [HIDDEN]
    return tensors


def llama_tensors(config):
    kind, head = config["model_type"], config.get("head_dim") or HIDDEN // HEADS
    gemma, biases = kind.startswith("gemma"), kind == "qwen2" or config.get("attention_bias")
    tied = config.get("tie_word_embeddings", gemma)
    tensors = {"model.embed_tokens.weight": [VOCAB, HIDDEN]}
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        for name, rows in {"q": HEADS * head, "k": KV_HEADS * head, "v": KV_HEADS * head}.items():
            tensors[f"{block}self_attn.{name}_proj.weight"] = [rows, HIDDEN]
            if biases:
                tensors[f"{block}self_attn.{name}_proj.bias"] = [rows]
            if kind in ("qwen3", "gemma3_text") and name != "v":
                tensors[f"{block}self_attn.{name}_norm.weight"] = [head]
        tensors[f"{block}self_attn.o_proj.weight"] = [HIDDEN, HEADS * head]
        if config.get("attention_bias"):
            tensors[f"{block}self_attn.o_proj.bias"] = [HIDDEN]
        for name in ("gate", "up"):
            tensors[f"{block}mlp.{name}_proj.weight"] = [FFN, HIDDEN]
        tensors[f"{block}mlp.down_proj.weight"] = [HIDDEN, FFN]
        if config.get("mlp_bias"):
            for name, rows in {"gate": FFN, "up": FFN, "down": HIDDEN}.items():
                tensors[f"{block}mlp.{name}_proj.bias"] = [rows]
        for name in ("input", "post_attention", *(("pre_feedforward", "post_feedforward") if gemma else ())):
            tensors[f"{block}{name}_layernorm.weight"] = [HIDDEN]
    tensors["model.norm.weight"] = [HIDDEN]
    if not tied:
        tensors["lm_head.weight"] = [VOCAB, HIDDEN]
    return tensors


DTYPES = {"gpt2": "F32", "llama": "BF16", "qwen2": "F32"}  # of the others F16


def data_of(name, shape, dtype, spread=0.1, seed=""):
    """Values around 0 for matrices and biases, around 1 for norms; the same for the same name and seed."""
    count = 1
    for size in shape:
        count *= size
    source = random.Random(f"{seed}{name}")
    center = 1 if len(shape) == 1 and not name.endswith("bias") else 0
    values = array.array("f", (center + source.gauss(0, spread) for _ in range(count)))
    if dtype == "F64":
        return array.array("d", values).tobytes()
    if dtype == "F16":
        return struct.pack(f"<{count}e", *values)
    if dtype == "BF16":
        return b"".join(values[i:i + 1].tobytes()[2:] for i in range(count))
    return values.tobytes()


def safetensors(tensors):
    """The bytes of a file. `tensors` is {name: (dtype, shape, data)}."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    """{name: (dtype, shape, data)} of a file, or of all those of a directory."""
    path = pathlib.Path(path)
    if path.is_dir():
        found = {}
        for file in sorted(path.glob("*.safetensors")):
            found.update(read_safetensors(file))
        return found
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    return {name: (info["dtype"], info["shape"], content[end + info["data_offsets"][0]:end + info["data_offsets"][1]])
            for name, info in header.items()}


def make(family, directory, dtype=None, shards=1, config=None, mixed=False, spread=0.1, seed=""):
    """Writes a directory and returns {name: (dtype, shape, data)}. `mixed`: norms in fp32 whatever the others are."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    dtype = dtype or DTYPES.get(family, "F16")
    config = {**CONFIGS[family], **(config or {})}
    tensors = {}
    for name, shape in (gpt2_tensors if family == "gpt2" else llama_tensors)(config).items():
        own = "F32" if mixed and len(shape) == 1 else dtype
        tensors[name] = (own, shape, data_of(name, shape, own, spread, seed))
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    (directory / "generation_config.json").write_text('{"eos_token_id": 2,  "do_sample": true}\n')
    (directory / "tokenizer.json").write_bytes('{"version": "1.0", "model": "\u00e9"}'.encode())
    (directory / "tokenizer_config.json").write_text("{}")
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m }}\r\n{% endfor %}")
    if shards == 1:
        (directory / "model.safetensors").write_bytes(safetensors(tensors))
        return tensors
    names, weight_map = list(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        weight_map.update(dict.fromkeys(part, file))
        (directory / file).write_bytes(safetensors(part))
    total = sum(len(content) for _, _, content in tensors.values())
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    return tensors


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2])
