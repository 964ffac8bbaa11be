"""The forward pass of gpt2, llama and qwen2 in plain Python, from the tensors of a Hugging Face directory under their own
names: slow, in double precision, and with nothing of the program in it."""

import array
import math
import struct


def matrix(tensor):
    """Rows of numbers; a vector is a matrix of one row."""
    dtype, shape, content = tensor
    count = 1
    for size in shape:
        count *= size
    if dtype == "BF16":
        content = b"".join(b"\0\0" + content[2 * i:2 * i + 2] for i in range(count))
    if dtype == "F16":
        values = struct.unpack(f"<{count}e", content)
    else:
        values = array.array({"F64": "d"}.get(dtype, "f"), content)
    cols = shape[-1]
    return [list(values[begin:begin + cols]) for begin in range(0, count, cols)]


def transposed(rows):
    return [list(column) for column in zip(*rows)]


def linear(x, weight, bias=None):
    """`weight` is [out, in]."""
    return [sum(a * b for a, b in zip(row, x)) + (bias[i] if bias else 0) for i, row in enumerate(weight)]


def layer_norm(x, weight, bias, eps):
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return [(value - mean) / math.sqrt(variance + eps) * w + b for value, w, b in zip(x, weight, bias)]


def rms_norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(value * value for value in x) / len(x) + eps)
    return [value * scale * w for value, w in zip(x, weight)]


def rope(head, position, theta):
    """Feature i turns with feature i + half."""
    half = len(head) // 2
    out = [0.0] * len(head)
    for i in range(half):
        angle = position * theta ** (-i / half)
        out[i] = head[i] * math.cos(angle) - head[i + half] * math.sin(angle)
        out[i + half] = head[i + half] * math.cos(angle) + head[i] * math.sin(angle)
    return out


def attention(queries, keys, values, heads, kv_heads):
    """Causal; each argument has a row for each token."""
    width = len(queries[0]) // heads
    out = []
    for t in range(len(queries)):
        row = []
        for head in range(heads):
            kv = head // (heads // kv_heads)
            query = queries[t][head * width:(head + 1) * width]
            scores = [sum(a * b for a, b in zip(query, keys[s][kv * width:(kv + 1) * width])) / math.sqrt(width)
                      for s in range(t + 1)]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            total = sum(weights)
            row += [sum(w * values[s][kv * width + i] for s, w in enumerate(weights)) / total for i in range(width)]
        out.append(row)
    return out


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def gpt2(config, tensors, ids, prefix="transformer."):
    def weight(name):
        return matrix(tensors[prefix + name])

    eps = config["layer_norm_epsilon"]
    table, positions = weight("wte.weight"), weight("wpe.weight")
    stream = [add(table[token], positions[t]) for t, token in enumerate(ids)]
    for layer in range(config["n_layer"]):
        def conv(name, x, layer=layer):
            return linear(x, transposed(weight(f"h.{layer}.{name}.weight")), weight(f"h.{layer}.{name}.bias")[0])

        def norm(name, x, layer=layer):
            return layer_norm(x, weight(f"h.{layer}.{name}.weight")[0], weight(f"h.{layer}.{name}.bias")[0], eps)

        qkv = [conv("attn.c_attn", norm("ln_1", x)) for x in stream]
        width = config["n_embd"]
        parts = [[row[i * width:(i + 1) * width] for row in qkv] for i in range(3)]
        attended = attention(*parts, config["n_head"], config["n_head"])
        stream = [add(x, conv("attn.c_proj", a)) for x, a in zip(stream, attended)]
        for t, x in enumerate(stream):
            up = conv("mlp.c_fc", norm("ln_2", x))
            hidden = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in up]
            stream[t] = add(x, conv("mlp.c_proj", hidden))
    final = [layer_norm(x, weight("ln_f.weight")[0], weight("ln_f.bias")[0], eps) for x in stream]
    return [linear(x, table) for x in final]


def llama(config, tensors, ids, turn=rope):
    def weight(name):
        return matrix(tensors[name])

    eps = config["rms_norm_eps"]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    table = weight("model.embed_tokens.weight")
    stream = [list(table[token]) for token in ids]
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."

        def project(name, x, block=block):
            bias = tensors.get(f"{block}{name}.bias")
            return linear(x, weight(f"{block}{name}.weight"), matrix(bias)[0] if bias else None)

        def turned(rows, count):
            width = len(rows[0]) // count
            return [sum((turn(row[h * width:(h + 1) * width], t, theta) for h in range(count)), [])
                    for t, row in enumerate(rows)]

        normed = [rms_norm(x, weight(f"{block}input_layernorm.weight")[0], eps) for x in stream]
        queries = turned([project("self_attn.q_proj", x) for x in normed], heads)
        keys = turned([project("self_attn.k_proj", x) for x in normed], kv_heads)
        values = [project("self_attn.v_proj", x) for x in normed]
        attended = attention(queries, keys, values, heads, kv_heads)
        stream = [add(x, project("self_attn.o_proj", a)) for x, a in zip(stream, attended)]
        for t, x in enumerate(stream):
            normed = rms_norm(x, weight(f"{block}post_attention_layernorm.weight")[0], eps)
            gate, up = project("mlp.gate_proj", normed), project("mlp.up_proj", normed)
            stream[t] = add(x, project("mlp.down_proj", [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]))
    final = [rms_norm(x, weight("model.norm.weight")[0], eps) for x in stream]
    return [linear(x, weight("lm_head.weight") if "lm_head.weight" in tensors else table) for x in final]


def logits(config, tensors, ids, turn=rope):
    """`turn` is how a head turns with its position."""
    return gpt2(config, tensors, ids) if config["model_type"] == "gpt2" else llama(config, tensors, ids, turn)


def read_npy(path):
    """Rows of a two-dimensional fp32 file."""
    content = path.read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\0", content[:8]
    end = 10 + struct.unpack("<H", content[8:10])[0]
    assert end % 64 == 0
    header = eval(content[10:end].decode())  # a dict of plain values, as NumPy itself reads it
    assert header["descr"] == "<f4" and not header["fortran_order"]
    rows, cols = header["shape"]
    values = array.array("f", content[end:])
    assert len(values) == rows * cols
    return [list(values[row * cols:(row + 1) * cols]) for row in range(rows)]
