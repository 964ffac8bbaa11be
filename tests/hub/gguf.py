"""GGUF files: a forward pass over what is in them, under llama.cpp's names and with its rotary positions, gives the logits
of the model that went in."""

import json
import math
import struct

import gguf_reader
import hub_test
import reference
import tiny_models
from hub_test import FAMILIES, HubTest
from tandem_run import BAD_DATA, BAD_USAGE

IDS = [1, 7, 2, 299, 0, 5]
LLAMA_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GPT2_NAMES = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
              "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
OUTER = {"llama": {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                   "output.weight": "lm_head.weight"},
         "gpt2": {"token_embd.weight": "transformer.wte.weight", "position_embd.weight": "transformer.wpe.weight",
                  "output_norm.weight": "transformer.ln_f.weight", "output_norm.bias": "transformer.ln_f.bias"}}


def pairs_rope(head, position, theta):
    """Feature 2i turns with feature 2i + 1."""
    out = [0.0] * len(head)
    for i in range(0, len(head), 2):
        angle = position * theta ** (-i / len(head))
        out[i] = head[i] * math.cos(angle) - head[i + 1] * math.sin(angle)
        out[i + 1] = head[i + 1] * math.cos(angle) + head[i] * math.sin(angle)
    return out


def tokenizer_json():
    """Byte-level BPE with 300 tokens: single letters, merges, and two special ones."""
    letters = [chr(code) for code in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    letters += [chr(256 + number) for number in range(256 - len(letters))]
    vocab = {letter: number for number, letter in enumerate(letters)}
    merges = []
    for pair in ("th", "he", "in", "er", "an"):
        merges.append(f"{pair[0]} {pair[1]}")
        vocab[pair] = len(vocab)
    added = [{"id": 298, "content": "<|im_start|>", "special": True}, {"id": 299, "content": "<tag>", "special": False}]
    return {"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges}}


def fallback_json():
    """BPE with byte fallback as Gemma's: spaces are a letter of their own, what has no letter is bytes."""
    vocab = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for letter in "▁thinera":
        vocab[letter] = len(vocab)
    merges = []
    for first, second in (("t", "h"), ("th", "e"), ("▁", "in"), ("i", "n"), ("e", "r"), ("▁", "i"), ("▁i", "n")):
        merges.append([first, second])
        vocab.setdefault(first + second, len(vocab))
    vocab["<tag>"] = 299
    special = [{"id": number, "content": token, "special": True} for token, number in list(vocab.items())[:4]]
    return {"added_tokens": special, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": True, "fuse_unk": True,
                      "unk_token": "<unk>"}}


class GgufTest(HubTest):
    def imported(self, family, name=None, tokenizer=None, **options):
        directory, tensors = self.make(family, name, **options)
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer or tokenizer_json()))
        run = self.directory / f"run-{name or family}"
        self.tandem("import", directory, run)
        return directory, tensors, run


class Gguf(GgufTest):
    def hub_tensors(self, family, found):
        """Under the names that reference.py knows, in fp32; gpt2's matrices the other way round again."""
        gpt2 = family == "gpt2"
        tensors = {}
        for name, (_, shape, values) in found.items():
            if name.startswith("blk."):
                _, block, own, suffix = name.split(".")
                prefix = f"transformer.h.{block}." if gpt2 else f"model.layers.{block}."
                hub = f"{prefix}{(GPT2_NAMES if gpt2 else LLAMA_NAMES)[own]}.{suffix}"
            else:
                hub = OUTER["gpt2" if gpt2 else "llama"][name]
            if gpt2 and name.startswith("blk.") and len(shape) == 2:
                rows, cols = shape
                values, shape = [values[row * cols + col] for col in range(cols) for row in range(rows)], [cols, rows]
            tensors[hub] = ("F32", shape, struct.pack(f"<{len(values)}f", *values))
        return tensors

    def test_a_forward_pass_over_the_file_is_that_of_the_model(self):
        for family in FAMILIES:
            directory, tensors, run = self.imported(family)
            config = self.read_json(directory / "config.json")
            expected = reference.logits(config, tensors, IDS)
            largest = max(abs(value) for row in expected for value in row)
            for quant, bound in (("f16", 2e-3), ("bf16", 2e-2), ("q8_0", 4e-2)):
                with self.subTest(family=family, quant=quant):
                    file = self.directory / f"{family}-{quant}.gguf"
                    self.tandem("export", run, file, "--format", "gguf", "--quant", quant)
                    keys, found = gguf_reader.read(file)
                    self.assertEqual(family, keys["general.architecture"])
                    self.assertEqual(4, keys[f"{family}.block_count"])
                    matrix = found["blk.0.ffn_down.weight"][0]
                    self.assertEqual({"f16": gguf_reader.F16, "bf16": gguf_reader.BF16}.get(
                        quant, gguf_reader.Q8_0 if family == "gpt2" else gguf_reader.F16), matrix)
                    rope = pairs_rope if family == "llama" else reference.rope
                    found = reference.logits(config, self.hub_tensors(family, found), IDS, rope)
                    for row, wanted in zip(found, expected):
                        self.assertLess(max(abs(a - b) for a, b in zip(row, wanted)), bound * largest)

    def test_the_tokenizer_goes_along(self):
        _, _, run = self.imported("llama")
        self.tandem("export", run, self.directory / "x.gguf", "--format", "gguf")
        keys, _ = gguf_reader.read(self.directory / "x.gguf")
        self.assertEqual(("gpt2", "gpt-2"), (keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]))
        tokens, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
        self.assertEqual((300, "!", "th", "[PAD297]", "<|im_start|>", "<tag>"),
                         (len(tokens), tokens[0], tokens[256], tokens[297], tokens[298], tokens[299]))
        self.assertEqual((1, 1, 5, 3, 4), (kinds[0], kinds[256], kinds[297], kinds[298], kinds[299]))
        self.assertEqual(["t h", "h e", "i n", "e r", "a n"], keys["tokenizer.ggml.merges"])
        self.assertEqual((1, 2), (keys["tokenizer.ggml.bos_token_id"], keys["tokenizer.ggml.eos_token_id"]))
        self.assertIn("{% for m in messages %}", keys["tokenizer.chat_template"])

    def test_info_knows_a_file(self):
        for family in (*FAMILIES, "qwen3", "gemma2", "gemma3_text"):
            with self.subTest(family):
                directory, tensors, run = self.imported(family)
                file = self.directory / f"{family}.gguf"
                self.tandem("export", run, file, "--format", "gguf", "--quant", "q8_0")
                info = json.loads(self.tandem("info", file, "--json").out)
                wanted = json.loads(self.tandem("info", directory, "--json").out)
                self.assertEqual(("gguf", 3, family), (info["kind"], info["version"], info["family"]))
                for key in ("parameters", "positions", "model", "memory"):
                    self.assertEqual(wanted[key], info[key], key)
                self.assertEqual("gpt2 (gpt-2), 300 tokens", info["tokenizer"])
                self.assertEqual(300, info["keys"]["tokenizer.ggml.tokens"]["count"])
                found = gguf_reader.read(file)[1]
                self.assertEqual({name: list(shape) for name, (_, shape, _) in found.items()},
                                 {tensor["name"]: tensor["shape"] for tensor in info["tensors"]})
                text = self.tandem("info", file).out
                for part in (str(file), "fsdp", "blk.0.ffn_up.weight"):
                    self.assertIn(part, text)

    def test_info_refuses_files_that_lie(self):
        _, _, run = self.imported("llama")
        file = self.directory / "x.gguf"
        self.tandem("export", run, file, "--format", "gguf")
        good = file.read_bytes()
        blocks = b"llama.block_count" + struct.pack("<I", 4)
        cases = {"GGUF": b"GGML" + good[4:], "version": good[:4] + struct.pack("<I", 9) + good[8:],
                 "tensors": good[:8] + b"\xff" * 8 + good[16:], "keys": good[:16] + b"\xff" * 8 + good[24:],
                 "is cut": good[:-1 - 32], "behind its last": good + bytes(33), "blk.4.": good.replace(
                     blocks + struct.pack("<I", 4), blocks + struct.pack("<I", 5)),
                 "block_count": good.replace(blocks + struct.pack("<I", 4), blocks + struct.pack("<I", 1 << 31)),
                 "no whole number llama.block_count": good.replace(b"llama.block_count", b"llama.block_coun_"),
                 "no text general.architecture": good.replace(b"general.architecture", b"general.architectur_"),
                 "is there twice": good.replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight")}
        for part, content in cases.items():
            with self.subTest(part):
                self.assertNotEqual(good, content)
                file.write_bytes(content)
                self.refuse(BAD_DATA, (str(file), part), "info", file)
        for size in range(0, 4000, 97):
            file.write_bytes(good[:size])
            self.refuse(BAD_DATA, (str(file),), "info", file)
        file.write_bytes(good.replace(b"general.architecture" + struct.pack("<IQ", 8, 5) + b"llama",
                                      b"general.architecture" + struct.pack("<IQ", 8, 5) + b"mamba"))
        self.assertIn("architecture 'mamba'", self.tandem("info", file).out)

    def test_what_llama_cpp_cannot_do_is_refused(self):
        _, _, run = self.imported("qwen2", config={"use_sliding_window": True, "max_window_layers": 2,
                                                   "sliding_window": 8})
        out = self.directory / "x.gguf"
        self.refuse(BAD_USAGE, ("model.window",), "export", run, out, "--format", "gguf")
        self.refuse(BAD_USAGE, ("--quant",), "export", run, out, "--format", "gguf", "--quant", "q2")
        self.refuse(BAD_USAGE, ("--quant",), "export", run, out, "--quant", "q8_0")
        for name, (family, config, key) in {
                "softcap": ("gemma2", {"attn_logit_softcapping": None}, "model.attention_softcap"),
                "logits": ("gemma2", {"final_logit_softcapping": None}, "model.logit_softcap"),
                "scores": ("gemma3_text", {"attn_logit_softcapping": 5.0}, "model.attention_softcap"),
                "layers": ("gemma2", {"layer_types": ["full_attention"] + ["sliding_attention"] * 3}, "model.full_layers"),
                "scale": ("gemma2", {"query_pre_attn_scalar": 9}, "model.attention_scale"),
                "biases": ("qwen3", {"attention_bias": True}, "model.out_bias")}.items():
            with self.subTest(name):
                _, _, other = self.imported(family, name=name, config=config)
                self.refuse(BAD_USAGE, (key,), "export", other, out, "--format", "gguf")
        (run / "hub" / "tokenizer.json").unlink()
        _, _, llama = self.imported("llama")
        (llama / "hub" / "tokenizer.json").unlink()
        self.refuse(BAD_USAGE, ("tokenizer.json",), "export", llama, out, "--format", "gguf")


if __name__ == "__main__":
    hub_test.main()
