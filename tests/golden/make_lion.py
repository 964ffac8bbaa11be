#!/usr/bin/env python3
"""Writes lion.json: weights and momenta after 30 steps of Lion, for lion_test.cpp.

The rule as published (Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, Algorithm 2), in plain Python:
    c = beta1 m + (1 - beta1) g;  w = w - lr (sign(c) + decay w);  m = beta2 m + (1 - beta2) g
"""

import json
import pathlib
import random

STEPS, ELEMS = 30, 37  # elements: no multiple of any vector
LR, BETA1, BETA2, DECAY = 0.01, 0.9, 0.99, 0.3


def sign(x):
    return (x > 0) - (x < 0)


def lion(weights, momenta, gradients, decay):
    for i, gradient in enumerate(gradients):
        direction = BETA1 * momenta[i] + (1 - BETA1) * gradient
        weights[i] -= LR * (sign(direction) + decay * weights[i])
        momenta[i] = BETA2 * momenta[i] + (1 - BETA2) * gradient


def main():
    rng = random.Random(1)
    # Eighths are exact in every type. Of a few elements all gradients are zero, and they must not move.
    start = [rng.randrange(-16, 17) / 8 for _ in range(ELEMS)]
    gradients = [[0 if i % 9 == 0 else rng.randrange(-64, 65) / 8 for i in range(ELEMS)] for _ in range(STEPS)]
    record = {"lr": LR, "beta1": BETA1, "beta2": BETA2, "decay": DECAY, "start": start, "gradients": gradients}
    for name, decay in (("decayed", DECAY), ("plain", 0)):
        weights, momenta = list(start), [0.0] * ELEMS
        for row in gradients:
            lion(weights, momenta, row, decay)
        record[name] = {"weights": weights, "momenta": momenta}
    path = pathlib.Path(__file__).parent / "lion.json"
    path.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
