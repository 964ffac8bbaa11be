#!/usr/bin/env python3
"""The losses of several runs over each other, as an SVG file, with nothing but the standard library.

  python3 bench/loss_chart.py losses.svg "llama-1b, 200 steps" bf16=runs/a/metrics.jsonl fp8=runs/b/metrics.jsonl

The vertical axis is logarithmic: what matters late is visible. Prints how far the last losses of each run are from the
first run's.
"""
import html
import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 56, 90, 44, 40
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5")
LATE = 20  # steps whose mean is compared


def read(path):
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return [(row["step"], row["loss"]) for row in rows if row.get("loss") is not None]


def ticks(low, high):
    """1, 2 and 5 of every decade between the two."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]


def chart(title, runs):
    points = [point for _, run in runs for point in run]
    last = max(step for step, _ in points)
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / last
    span = math.log(high / low) or 1.0
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * math.log(high / loss) / span
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield f'<text x="{LEFT}" y="24" font-size="16">{html.escape(title)}</text>'
    for loss in ticks(low, high):
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#e2e8f0"/>'
        yield f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:g}</text>'
    for step in range(0, last + 1, max(1, last // 8)):
        yield f'<text x="{x(step):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{step}</text>'
    for number, (name, run) in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in run)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        yield f'<text x="{WIDTH - RIGHT + 8}" y="{TOP + 16 + 18 * number}" fill="{colour}">{html.escape(name)}</text>'
    yield "</svg>"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.strip())
    path, title, *named = sys.argv[1:]
    runs = [(name, read(file)) for name, file in (item.split("=", 1) for item in named)]
    with open(path, "w") as file:
        file.write("\n".join(chart(title, runs)) + "\n")
    late = [sum(loss for _, loss in run[-LATE:]) / len(run[-LATE:]) for _, run in runs]
    for (name, run), mean in zip(runs, late):
        print(f"{name}: loss {run[-1][1]:.4f} after {run[-1][0]} steps ({run[-1][1] / runs[0][1][-1][1] - 1:+.2%}); "
              f"mean of the last {LATE} {mean:.4f} ({mean / late[0] - 1:+.2%})")


if __name__ == "__main__":
    main()
