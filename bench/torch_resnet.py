#!/usr/bin/env python3
"""One ResNet in PyTorch, as a user would write it for speed: channels last, bf16 by autocast, torch.compile, fused SGD. Prints a line of JSON.

  python3 bench/torch_resnet.py --width 64 --blocks 2,2,2 --size 32 --classes 10 --batch 512 [--stem imagenet] [--bottleneck] [--mode compile|eager]
"""
import time
T0 = time.time()
import argparse
import json
import statistics

import torch
from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    """Two convolutions, or three of a bottleneck, with BatchNorm, and the way around them."""

    def __init__(self, inputs, middle, outputs, stride):
        super().__init__()
        shapes = [(inputs, middle, 3, stride), (middle, middle, 3, 1)]
        if outputs != middle:
            shapes = [(inputs, middle, 1, 1), (middle, middle, 3, stride), (middle, outputs, 1, 1)]
        self.convs = nn.ModuleList([conv(*shape) for shape in shapes])
        self.norms = nn.ModuleList([nn.BatchNorm2d(shape[1]) for shape in shapes])
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for index, (product, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(product(y))
            if index + 1 < len(self.convs):
                y = F.relu(y)
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width, blocks, classes, imagenet, bottleneck):
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 7 if imagenet else 3, 2 if imagenet else 1), nn.BatchNorm2d(width), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        made, inputs, middle = [], width, width
        for stage, count in enumerate(blocks):
            middle *= 2 if stage else 1
            outputs = middle * (4 if bottleneck else 1)
            for index in range(count):
                made.append(Block(inputs, middle, outputs, 2 if stage and index == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*made)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images, labels):
        x = self.blocks(self.pool(self.stem(images)))
        return F.cross_entropy(self.head(x.mean((2, 3))).float(), labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", default="2,2,2")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--stem", choices=["small", "imagenet"], default="small")
    parser.add_argument("--bottleneck", action="store_true")
    parser.add_argument("--precision", choices=["bf16", "fp16", "fp32"], default="bf16")
    parser.add_argument("--mode", choices=["compile", "eager"], default="compile")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    on_gpu = args.device == "cuda"
    model = ResNet(args.width, [int(count) for count in args.blocks.split(",")], args.classes, args.stem == "imagenet", args.bottleneck)
    model = model.to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, **({"fused": True} if on_gpu else {}))
    step_model = torch.compile(model) if args.mode == "compile" else model
    images = torch.randn(args.batch, 3, args.size, args.size, device=args.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, args.classes, (args.batch,), device=args.device)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[args.precision]
    times, first = [], None
    for step in range(args.warmup + args.steps):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=dtype, enabled=args.precision != "fp32"):
            loss = step_model(images, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value = loss.item()
        if on_gpu:
            torch.cuda.synchronize()
        first = first or time.time() - T0
        if step >= args.warmup:
            times.append(time.time() - start)
    median = statistics.median(times)
    print(json.dumps({"images_per_s": args.batch / median, "ms": 1e3 * median, "loss": value, "first_step_s": first,
                      "params": sum(weight.numel() for weight in model.parameters()),
                      "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None}))


main()
