#!/usr/bin/env python3
"""Writes optimizers.json: the parameters of a tiny gpt2 after 20 steps of LAMB, LARS, schedule-free AdamW and
Adafactor, for optimizers_test.cpp.

The rules as published, in plain Python and doubles, parameter by parameter: LAMB (You et al. 2020, algorithm 2) and LARS (You et
al. 2017), whose ratios are those of matrices; biases and norms have none, and no decay; schedule-free AdamW (Defazio et al.
2024, algorithm 1) with its sequences x, y and z, of which x, the mean of all z, is written; Adafactor (Shazeer and Stern 2018) with the numbers of
torch.optim.Adafactor. Weights, gradients and parameters are
make_muon.py's.
"""

import json
import math
import pathlib

from make_muon import PARAMETERS, fraction

STEPS, LR, DECAY = 20, 0.01, 0.1
OWN = {"lamb": [0.9, 0.999, 1e-6], "lars": [0.9, 0.02, 1e-8], "schedule_free_adamw": [0.9, 0.999, 1e-8],
       "adafactor": [-0.8, 1e-3, 1.0]}


def norm(values):
    return math.sqrt(sum(value * value for value in values))


class Lamb:
    def __init__(self, weights, decay):
        self.weights, self.decay, self.step = weights, decay, 0
        self.first, self.second = [0.0] * len(weights), [0.0] * len(weights)

    def update(self, gradients):
        self.step += 1
        beta1, beta2, eps = OWN["lamb"]
        direction = []
        for i, gradient in enumerate(gradients):
            self.first[i] = beta1 * self.first[i] + (1 - beta1) * gradient
            self.second[i] = beta2 * self.second[i] + (1 - beta2) * gradient * gradient
            mean, square = self.first[i] / (1 - beta1**self.step), self.second[i] / (1 - beta2**self.step)
            direction.append(mean / (math.sqrt(square) + eps) + self.decay * self.weights[i])
        ratio = norm(self.weights) / norm(direction) if self.decay else 1
        self.weights = [w - LR * ratio * u for w, u in zip(self.weights, direction)]


class Lars:
    def __init__(self, weights, decay):
        self.weights, self.decay = weights, decay
        self.momenta = [0.0] * len(weights)

    def update(self, gradients):
        momentum, coefficient, eps = OWN["lars"]
        size = norm(self.weights)
        ratio = coefficient * size / (norm(gradients) + self.decay * size + eps) if self.decay else 1
        self.momenta = [momentum * m + ratio * (g + self.decay * w)
                        for m, g, w in zip(self.momenta, gradients, self.weights)]
        self.weights = [w - LR * m for w, m in zip(self.weights, self.momenta)]


class ScheduleFree:
    def __init__(self, weights, decay):
        self.weights, self.decay, self.step = weights, decay, 0  # x
        self.moved, self.second = list(weights), [0.0] * len(weights)  # z, v

    def update(self, gradients):
        self.step += 1
        beta1, beta2, eps = OWN["schedule_free_adamw"]
        for i, gradient in enumerate(gradients):
            at = (1 - beta1) * self.moved[i] + beta1 * self.weights[i]  # y, where the gradient was taken
            self.second[i] = beta2 * self.second[i] + (1 - beta2) * gradient * gradient
            root = math.sqrt(self.second[i] / (1 - beta2**self.step)) + eps
            self.moved[i] -= LR * (gradient / root + self.decay * at)
            self.weights[i] += (self.moved[i] - self.weights[i]) / self.step


class Adafactor:
    def __init__(self, weights, decay, cols):
        self.weights, self.decay, self.cols, self.step = weights, decay, cols, 0  # cols 0: a vector
        rows = len(weights) // cols if cols else 0
        self.row_squares, self.col_squares, self.squares = [0.0] * rows, [0.0] * cols, [0.0] * len(weights)

    def update(self, gradients):
        self.step += 1
        beta2_decay, eps, clip = OWN["adafactor"]
        share, eps1 = self.step**beta2_decay, 2.0**-23

        def moved(old, new):
            return [a + share * (b - a) for a, b in zip(old, new)]

        squares, cols = [g * g for g in gradients], self.cols
        if cols:
            rows = len(squares) // cols
            self.row_squares = moved(self.row_squares, [sum(squares[r * cols:(r + 1) * cols]) / cols for r in range(rows)])
            self.col_squares = moved(self.col_squares, [sum(squares[c::cols]) / rows for c in range(cols)])
            mean = max(sum(self.row_squares) / rows, eps1)
            means = [r * c / mean for r in self.row_squares for c in self.col_squares]
        else:
            means = self.squares = moved(self.squares, squares)
        direction = [g / math.sqrt(max(m, eps1 * eps1)) for g, m in zip(gradients, means)]
        root = math.sqrt(len(gradients))
        rate = max(eps, norm(self.weights) / root) * min(LR, 1 / math.sqrt(self.step))
        rate /= max(1, norm(direction) / (root * clip))
        self.weights = [w * (1 - LR * self.decay) - rate * u for w, u in zip(self.weights, direction)]


def train(rule):
    ends = {}
    for index, (name, shape, _) in enumerate(PARAMETERS):
        elems = math.prod(shape)
        shaped = [shape[-1] if len(shape) > 1 else 0] if rule is Adafactor else []
        trained = rule([fraction(1000 + index, i) for i in range(elems)], DECAY if len(shape) > 1 else 0, *shaped)
        for step in range(1, STEPS + 1):
            trained.update([fraction(100 * step + index, i) for i in range(elems)])
        ends[name] = [round(value, 9) for value in trained.weights]
    return ends


def main():
    record = {"steps": STEPS, "lr": LR, "decay": DECAY, "own": OWN, "names": [name for name, _, _ in PARAMETERS],
              "lamb": train(Lamb), "lars": train(Lars), "schedule_free_adamw": train(ScheduleFree),
              "adafactor": train(Adafactor)}
    path = pathlib.Path(__file__).parent / "optimizers.json"
    path.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
