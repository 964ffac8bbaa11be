#!/usr/bin/env python3
"""Draws the README's picture from a finished run: python3 docs/quickstart_picture.py runs/quickstart docs/quickstart.svg"""
import html
import json
import math
import os
import subprocess
import sys

run_dir, out = sys.argv[1], sys.argv[2]
rows = [json.loads(line) for line in open(os.path.join(run_dir, "metrics.jsonl"))]
summary = json.load(open(os.path.join(run_dir, "summary.json")))
floor = summary["loss_floor"]
tandem = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin/tandem")
text = subprocess.run([tandem, "sample", run_dir, "--prompt", "Ben", "--tokens", "240"], capture_output=True, text=True).stdout

WIDTH, HEIGHT, LEFT, TOP, PLOT_W, PLOT_H = 860, 430, 60, 50, 770, 220
last = rows[-1]["step"]
high, low = math.log(rows[0]["loss"]), math.log(floor * 0.85)
x = lambda step: LEFT + PLOT_W * step / last
y = lambda loss: TOP + PLOT_H * (high - math.log(loss)) / (high - low)

parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">',
         f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
         f'<text x="{LEFT}" y="28" font-size="16">scripts/quickstart: loss of a {len(rows)}-step run, on a log scale</text>']
for tick in (0.3, 0.5, 1, 2, 4):
    parts.append(f'<line x1="{LEFT}" x2="{LEFT + PLOT_W}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e5e5e5"/>')
    parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#555555">{tick}</text>')
for tick in range(0, last + 1, max(1, last // 5)):
    parts.append(f'<text x="{x(tick):.1f}" y="{TOP + PLOT_H + 18}" text-anchor="middle" fill="#555555">{tick}</text>')
points = " ".join(f'{x(r["step"]):.1f},{y(r["loss"]):.1f}' for r in rows)
parts.append(f'<polyline points="{points}" fill="none" stroke="#2b6cb0" stroke-width="1.5"/>')
for r in rows:
    if r.get("eval_loss"):
        parts.append(f'<circle cx="{x(r["step"]):.1f}" cy="{y(r["eval_loss"]):.1f}" r="4" fill="#c05621"/>')
parts.append(f'<line x1="{LEFT}" x2="{LEFT + PLOT_W}" y1="{y(floor):.1f}" y2="{y(floor):.1f}" stroke="#2f855a" stroke-dasharray="6 4"/>')
parts.append(f'<text x="{LEFT + 6}" y="{y(floor) - 6:.1f}" fill="#2f855a">loss_floor {floor:.4f}: the exact entropy of the data</text>')
parts.append(f'<text x="{LEFT + PLOT_W}" y="{TOP + 14}" text-anchor="end" fill="#2b6cb0">training loss</text>')
parts.append(f'<text x="{LEFT + PLOT_W}" y="{TOP + 32}" text-anchor="end" fill="#c05621">eval loss, {summary["eval_loss"]:.4f} at the end '
             f'(+{100 * (summary["eval_loss"] / floor - 1):.1f}%)</text>')
line, lines = "", []
for word in text.split():
    if len(line) + len(word) > 104:
        lines.append(line)
        line = ""
    line += (" " if line else "") + word
lines.append(line)
top = TOP + PLOT_H + 52
parts.append(f'<text x="{LEFT}" y="{top}" font-size="14">What the model writes after "Ben":</text>')
for i, content in enumerate(lines[:5]):
    parts.append(f'<text x="{LEFT}" y="{top + 22 + 18 * i}" font-family="monospace" font-size="12">{html.escape(content)}</text>')
parts.append("</svg>")
with open(out, "w") as file:
    file.write("\n".join(parts) + "\n")
