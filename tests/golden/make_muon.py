#!/usr/bin/env python3
"""Writes muon.json: the parameters of a tiny gpt2 after 20 steps of Muon, for muon_test.cpp.

The rule as published (Jordan et al., Muon, 2024) and as torch.optim.Muon has it, in plain Python and doubles: Nesterov's
momentum, five iterations of Newton and Schulz, for each of the blocks' matrices (queries, keys and values are three). AdamW
trains the rest. Weights and gradients to start from are small fractions, which both sides work out.
"""

import json
import math
import pathlib

STEPS, LR, DECAY, MOMENTUM = 20, 0.01, 0.1, 0.95
BETA1, BETA2, EPS = 0.9, 0.95, 1e-8
A, B, C, TINY = 3.4445, -4.7750, 2.0315, 1e-7
WIDTH, FFN, CONTEXT, VOCAB = 8, 32, 8, 32

# Name, shape, how many matrices its rows are; 0: AdamW's.
PARAMETERS = [
    ("embed.weight", (VOCAB, WIDTH), 0), ("pos.weight", (CONTEXT, WIDTH), 0),
    ("blocks.0.norm1.weight", (WIDTH,), 0), ("blocks.0.norm1.bias", (WIDTH,), 0),
    ("blocks.0.qkv.weight", (3 * WIDTH, WIDTH), 3), ("blocks.0.qkv.bias", (3 * WIDTH,), 0),
    ("blocks.0.out.weight", (WIDTH, WIDTH), 1), ("blocks.0.out.bias", (WIDTH,), 0),
    ("blocks.0.norm2.weight", (WIDTH,), 0), ("blocks.0.norm2.bias", (WIDTH,), 0),
    ("blocks.0.up.weight", (FFN, WIDTH), 1), ("blocks.0.up.bias", (FFN,), 0),
    ("blocks.0.down.weight", (WIDTH, FFN), 1), ("blocks.0.down.bias", (WIDTH,), 0),
    ("norm.weight", (WIDTH,), 0), ("norm.bias", (WIDTH,), 0),
]


def fraction(seed, i):
    """A number of 1/64ths in [-2, 2), by the bits of a linear congruential step."""
    return ((seed * 7919 + i + 1) * 1103515245 % 2147483648 // 65536 % 256 - 128) / 64


def product(a, b):
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def weighted(p, a, q, b):
    return [[p * x + q * y for x, y in zip(*rows)] for rows in zip(a, b)]


def orthogonalized(matrix):
    tall = len(matrix) > len(matrix[0])
    x = [list(column) for column in zip(*matrix)] if tall else matrix
    norm = max(math.sqrt(sum(value * value for row in x for value in row)), TINY)
    x = [[value / norm for value in row] for row in x]
    for _ in range(5):
        square = product(x, [list(column) for column in zip(*x)])
        x = weighted(A, x, 1, product(weighted(B, square, C, product(square, square)), x))
    return [list(column) for column in zip(*x)] if tall else x


def muon(weights, momenta, gradients, rows, cols, original):
    for i, gradient in enumerate(gradients):
        momenta[i] = MOMENTUM * momenta[i] + (1 - MOMENTUM) * gradient
    ahead = [MOMENTUM * m + (1 - MOMENTUM) * g for m, g in zip(momenta, gradients)]
    done = orthogonalized([ahead[row * cols:(row + 1) * cols] for row in range(rows)])
    scale = math.sqrt(max(1, rows / cols)) if original else 0.2 * math.sqrt(max(rows, cols))
    for i, direction in enumerate(value for row in done for value in row):
        weights[i] = weights[i] * (1 - LR * DECAY) - LR * scale * direction


def adamw(weights, first, second, gradients, step, decay):
    for i, gradient in enumerate(gradients):
        first[i] = BETA1 * first[i] + (1 - BETA1) * gradient
        second[i] = BETA2 * second[i] + (1 - BETA2) * gradient * gradient
        mean, square = first[i] / (1 - BETA1**step), second[i] / (1 - BETA2**step)
        weights[i] = weights[i] * (1 - LR * decay) - LR * mean / (math.sqrt(square) + EPS)


def train(original):
    ends = {}
    for index, (name, shape, matrices) in enumerate(PARAMETERS):
        elems = math.prod(shape)
        weights = [fraction(1000 + index, i) for i in range(elems)]
        first, second = [0.0] * elems, [0.0] * elems
        for step in range(1, STEPS + 1):
            gradients = [fraction(100 * step + index, i) for i in range(elems)]
            if matrices == 0:
                adamw(weights, first, second, gradients, step, DECAY if len(shape) > 1 else 0)
            size = elems // max(1, matrices)
            for part in (slice(k * size, (k + 1) * size) for k in range(matrices)):
                pieces = weights[part], first[part]
                muon(*pieces, gradients[part], shape[0] // matrices, shape[1], original)
                weights[part], first[part] = pieces
        ends[name] = [round(value, 9) for value in weights]
    return ends


def main():
    record = {"steps": STEPS, "lr": LR, "decay": DECAY, "momentum": MOMENTUM, "names": [name for name, _, _ in PARAMETERS],
              "match_rms_adamw": train(False), "original": train(True)}
    path = pathlib.Path(__file__).parent / "muon.json"
    path.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
