"""Makes the golden losses that golden_test.cpp compares with: 20 training steps in PyTorch of small models
from fixed weights and fixed data.

Weights, tokens and images are not stored: both sides compute them from the same hash of a name and an index
(`noise` below, `golden_noise` in golden_test.cpp), so the golden files hold nothing but losses and gradient norms.

  python3 tests/golden/make_golden.py tests/golden      # with torch 2.11

tests/cuda/pytorch.py makes others, on a GPU and of more steps, with --device cuda --steps 50 and the like.
"""
import argparse
import json
import math

import numpy as np
import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1


def mix(x):
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def name_hash(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    return mix(np.array([h], dtype=np.uint64))[0]


def noise(name, count):
    """Numbers in [-1, 1), exact in fp32."""
    with np.errstate(over="ignore"):
        x = mix(name_hash(name) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return ((x >> np.uint64(40)).astype(np.float64) * 2.0 ** -23 - 1.0).astype(np.float32)


def integers(name, count, limit):
    u = (noise(name, count).astype(np.float64) + 1.0) / 2.0
    return np.minimum((u * limit).astype(np.int64), limit - 1)


class Model:
    device = "cpu"

    def __init__(self):
        self.params = {}

    def param(self, name, shape, kind):
        x = noise(name, int(np.prod(shape)))
        if kind == "ones":
            x = np.float32(1) + np.float32(0.1) * x
        elif kind == "zeros":
            x = np.float32(0.02) * x
        else:
            x = np.float32(kind) * x
        p = torch.from_numpy(x.reshape(shape).copy()).to(self.device).requires_grad_()
        self.params[name] = p
        return p


def attention(q, k, v, heads, kv_heads):
    b, t, _ = q.shape
    split = lambda x, h: x.view(b, t, h, -1).transpose(1, 2)
    q, k, v = split(q, heads), split(k, kv_heads), split(v, kv_heads)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        s = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        y = F.softmax(s.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf")), -1) @ v
    return y.transpose(1, 2).reshape(b, t, -1)


class Gpt2(Model):
    config = dict(family="gpt2", layers=3, width=64, heads=4, kv_heads=4, context=48, vocab=96, ffn=256, batch=4)

    def __init__(self):
        super().__init__()
        c = self.config
        d = c["width"]
        self.param("embed.weight", (c["vocab"], d), 0.05)
        self.param("pos.weight", (c["context"], d), 0.05)
        for i in range(c["layers"]):
            n = f"blocks.{i}."
            self.norm(n + "norm1", d)
            self.linear(n + "qkv", 3 * d, d)
            self.linear(n + "out", d, d)
            self.norm(n + "norm2", d)
            self.linear(n + "up", c["ffn"], d)
            self.linear(n + "down", d, c["ffn"])
        self.norm("norm", d)

    def norm(self, n, d):
        self.param(n + ".weight", (d,), "ones")
        self.param(n + ".bias", (d,), "zeros")

    def linear(self, n, o, i):
        self.param(n + ".weight", (o, i), 0.08)
        self.param(n + ".bias", (o,), "zeros")

    def loss(self, x, y):
        p, c = self.params, self.config
        d = c["width"]
        ln = lambda h, n: F.layer_norm(h, (d,), p[n + ".weight"], p[n + ".bias"])
        lin = lambda h, n: F.linear(h, p[n + ".weight"], p[n + ".bias"])
        h = F.embedding(x, p["embed.weight"]) + p["pos.weight"]
        for i in range(c["layers"]):
            n = f"blocks.{i}."
            q, k, v = lin(ln(h, n + "norm1"), n + "qkv").split(d, -1)
            h = h + lin(attention(q, k, v, c["heads"], c["kv_heads"]), n + "out")
            m = F.gelu(lin(ln(h, n + "norm2"), n + "up"), approximate="tanh")
            h = h + lin(m, n + "down")
        logits = F.linear(ln(h, "norm"), p["embed.weight"])
        return F.cross_entropy(logits.view(-1, c["vocab"]).float(), y.view(-1), ignore_index=-1)


class Llama(Model):
    config = dict(family="llama", layers=3, width=64, heads=4, kv_heads=2, context=48, vocab=96, ffn=160, batch=4,
                  rope_theta=10000.0)

    def __init__(self):
        super().__init__()
        c = self.config
        d, hd = c["width"], c["width"] // c["heads"]
        self.param("embed.weight", (c["vocab"], d), 0.05)
        for i in range(c["layers"]):
            n = f"blocks.{i}."
            self.param(n + "norm1.weight", (d,), "ones")
            self.param(n + "qkv.weight", ((c["heads"] + 2 * c["kv_heads"]) * hd, d), 0.08)
            self.param(n + "out.weight", (d, d), 0.08)
            self.param(n + "norm2.weight", (d,), "ones")
            self.param(n + "gate_up.weight", (2 * c["ffn"], d), 0.08)
            self.param(n + "down.weight", (d, c["ffn"]), 0.08)
        self.param("norm.weight", (d,), "ones")
        self.param("head.weight", (c["vocab"], d), 0.08)

    def loss(self, x, y):
        p, c = self.params, self.config
        d, hd, t = c["width"], c["width"] // c["heads"], c["context"]
        freq = 1.0 / (c["rope_theta"] ** (torch.arange(0, hd, 2).double() / hd))
        angle = torch.outer(torch.arange(t).double(), freq)
        cos, sin = angle.cos().float().to(self.device), angle.sin().float().to(self.device)

        def rope(q, heads):
            b = q.shape[0]
            a, z = q.view(b, t, heads, hd).float().chunk(2, -1)
            cs, sn = cos[:, None, :], sin[:, None, :]
            return torch.cat([a * cs - z * sn, z * cs + a * sn], -1).reshape(b, t, heads * hd).to(q.dtype)

        def norm(h, n):
            h32 = h.float()
            return (h32 * torch.rsqrt(h32.pow(2).mean(-1, keepdim=True) + 1e-5) * p[n + ".weight"]).to(h.dtype)

        h = F.embedding(x, p["embed.weight"])
        for i in range(c["layers"]):
            n = f"blocks.{i}."
            q, k, v = F.linear(norm(h, n + "norm1"), p[n + "qkv.weight"]).split([c["heads"] * hd, c["kv_heads"] * hd, c["kv_heads"] * hd], -1)
            a = attention(rope(q, c["heads"]), rope(k, c["kv_heads"]), v, c["heads"], c["kv_heads"])
            h = h + F.linear(a, p[n + "out.weight"])
            gate, up = F.linear(norm(h, n + "norm2"), p[n + "gate_up.weight"]).chunk(2, -1)
            h = h + F.linear(F.silu(gate) * up, p[n + "down.weight"])
        logits = F.linear(norm(h, "norm"), p["head.weight"])
        return F.cross_entropy(logits.view(-1, c["vocab"]).float(), y.view(-1), ignore_index=-1)


class Resnet(Model):
    config = dict(family="resnet", width=8, image_size=16, channels=3, classes=10, blocks=[1, 1, 1], norm="batch", groups=4, batch=8)

    def __init__(self, norm="batch", **changes):
        super().__init__()
        self.config = dict(self.config, norm=norm, **changes)
        c = self.config
        w = c["width"]
        self.conv("stem", w, 7 if self.imagenet() else 3, c["channels"])
        self.norm_params("stem_norm", w)
        ch = w
        for n, inp, mid, ch, stride in self.blocks():
            self.conv(n + "conv1", mid, 1 if ch != mid else 3, inp)
            self.norm_params(n + "norm1", mid)
            self.conv(n + "conv2", mid, 3, mid)
            self.norm_params(n + "norm2", mid)
            if ch != mid:
                self.conv(n + "conv3", ch, 1, mid)
                self.norm_params(n + "norm3", ch)
            if stride > 1 or inp != ch:
                self.conv(n + "shortcut", ch, 1, inp)
                self.norm_params(n + "shortcut_norm", ch)
        self.param("head.weight", (c["classes"], ch), 0.3)
        self.param("head.bias", (c["classes"],), "zeros")

    def imagenet(self):
        return self.config.get("stem") == "imagenet"

    def blocks(self):
        """Of each: its name, channels in, in the middle and out, stride."""
        c = self.config
        inp, mid, index = c["width"], c["width"], 0
        for stage, count in enumerate(c["blocks"]):
            mid *= 2 if stage else 1
            out = mid * (4 if c.get("bottleneck") else 1)
            for i in range(count):
                yield f"blocks.{index}.", inp, mid, out, 2 if stage and i == 0 else 1
                inp, index = out, index + 1

    def conv(self, n, o, k, i):
        self.param(n + ".weight", (o, k, k, i), math.sqrt(2.0 / (k * k * i)))

    def norm_params(self, n, d):
        self.param(n + ".weight", (d,), "ones")
        self.param(n + ".bias", (d,), "zeros")

    def loss(self, x, y):
        p, c = self.params, self.config

        def conv(h, n, stride):
            w = p[n + ".weight"].permute(0, 3, 1, 2)
            return F.conv2d(h, w, stride=stride, padding=w.shape[-1] // 2)

        def norm(h, n):
            if c["norm"] == "group":
                return F.group_norm(h.float(), c["groups"], p[n + ".weight"], p[n + ".bias"])
            return F.batch_norm(h, None, None, p[n + ".weight"], p[n + ".bias"], training=True)

        h = F.relu(norm(conv(x, "stem", 2 if self.imagenet() else 1), "stem_norm"))
        if self.imagenet():
            h = F.max_pool2d(h, 3, 2, 1)
        for n, inp, mid, out, s in self.blocks():
            wide = out != mid  # a bottleneck
            z = F.relu(norm(conv(h, n + "conv1", 1 if wide else s), n + "norm1"))
            z = norm(conv(z, n + "conv2", s if wide else 1), n + "norm2")
            if wide:
                z = norm(conv(F.relu(z), n + "conv3", 1), n + "norm3")
            skip = norm(conv(h, n + "shortcut", s), n + "shortcut_norm") if n + "shortcut.weight" in p else h
            h = F.relu(z + skip)
        logits = F.linear(h.mean((2, 3)), p["head.weight"], p["head.bias"])
        return F.cross_entropy(logits.float(), y, ignore_index=-1)


def batch_of(model, step):
    c = model.config
    b = c["batch"]
    if c["family"] == "resnet":
        s = c["image_size"]
        x = noise(f"images.{step}", b * s * s * c["channels"]).reshape(b, s, s, c["channels"])
        y = integers(f"targets.{step}", b, c["classes"])
        return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y)
    x = integers(f"tokens.{step}", b * c["context"], c["vocab"]).reshape(b, -1)
    y = integers(f"targets.{step}", b * c["context"], c["vocab"]).reshape(b, -1).copy()
    y[:, -3:] = -1  # a ragged tail that does not count
    return torch.from_numpy(x), torch.from_numpy(y)


def unpacked(model):
    """Packed parameters in the parts that are matrices of their own, each a leaf: {name: parts}."""
    c, parts = model.config, {}
    for name, weight in model.params.items():
        if name.endswith("qkv.weight"):
            head = c["width"] // c["heads"]
            sizes = [c["heads"] * head, c["kv_heads"] * head, c["kv_heads"] * head]
        elif name.endswith("gate_up.weight"):
            sizes = [c["ffn"]] * 2
        else:
            continue
        parts[name] = [part.clone().requires_grad_() for part in weight.detach().split(sizes)]
    return parts


def train(model, precision, steps, lr, optimizer):
    packed = unpacked(model) if optimizer == "muon" else {}
    leaves = [(name, leaf) for name, p in model.params.items() for leaf in packed.get(name, [p])]
    is_muons = lambda name, p: optimizer == "muon" and name.startswith("blocks.") and p.dim() > 1
    matrices = [p for name, p in leaves if is_muons(name, p)]
    decay = [p for name, p in leaves if not is_muons(name, p) and p.dim() > 1]
    plain = [p for name, p in leaves if p.dim() <= 1]
    opts = [torch.optim.AdamW([dict(params=decay, weight_decay=0.1), dict(params=plain, weight_decay=0.0)],
                              lr=lr, betas=(0.9, 0.95), eps=1e-8)]
    if matrices:
        opts.append(torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"))
    losses, norms = [], []
    for step in range(steps):
        x, y = (t.to(model.device) for t in batch_of(model, step % 2))  # two batches in turn, so that the loss falls
        for opt in opts:
            opt.zero_grad(set_to_none=True)
        for name, parts in packed.items():
            model.params[name] = torch.cat(parts)
        with torch.autocast(model.device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model.loss(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in leaves], 1.0)
        for opt in opts:
            opt.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


MAKERS = {"gpt2": Gpt2, "llama": Llama, "resnet": Resnet, "resnet_group": lambda: Resnet("group"),
          "resnet_imagenet": lambda: Resnet(stem="imagenet", image_size=48, blocks=[2, 1, 1]),
          # Of bottlenecks this shape: 20 steps of torch in fp32 and in fp64 agree within 1e-6. Of [1, 2, 1], and of larger images, they
          # part by 1e-5 to 1e-2, so that no program can be held to 1e-5 there.
          "resnet_bottleneck": lambda: Resnet(stem="imagenet", image_size=48, blocks=[1, 1], bottleneck=True)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--models", default=",".join(MAKERS))
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Model.device = args.device
    for name in args.models.split(","):
        for precision in ("fp32", "bf16"):
            model = MAKERS[name]()
            losses, norms = train(model, precision, args.steps, args.lr, args.optimizer)
            record = dict(torch=torch.__version__, precision=precision, lr=args.lr, model=model.config, losses=losses,
                          grad_norms=norms)
            if args.optimizer == "muon":  # whose products torch makes in bf16, whatever the model's are made in
                record.update(optimizer="muon", tolerance=1e-2)
            with open(f"{args.out}/{name}_{precision}.json", "w") as f:
                json.dump(record, f, indent=1)
                f.write("\n")
            print(name, precision, losses[0], losses[-1], norms[0], norms[-1])


main()
