#!/usr/bin/env python3
"""Records the README's moving picture: runs the commands below in a terminal and draws what they print, as it came.

  python3 docs/recording.py [--tandem build/release/bin/tandem] docs/images/recording.svg

Nothing is typed in by hand but the commands. Waits are cut short; a picture that is not animated shows the end.
"""
import argparse
import fcntl
import html
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMNS, ROWS = 118, 36
LONGEST_WAIT, TYPING = 0.35, 0.025  # seconds of the picture
RUN = "train configs/fsdp_2gpu.yaml"
SCENES = [
    ("# An 8B model with AdamW on one GPU: does it fit? Asked on a laptop.", None),
    ("tandem plan configs/llama-8b.yaml", None),
    ("# Two ranks, half of everything each. One is killed on the way.", None),
    (f"tandem launch --nproc-per-node 2 --max-restarts 1 {RUN} --run-dir runs/killed", "kill"),
    (f"tandem launch --nproc-per-node 2 {RUN} --run-dir runs/undisturbed", "quiet"),
    ("tandem inspect runs/killed --compare runs/undisturbed", None),
]


class Screen:
    """Lines of text, and when each stood there."""

    def __init__(self):
        self.lines, self.states, self.now = [""], [], 0.0
        self.since = [0.0]

    def change(self, row, text):
        if text == self.lines[row]:
            return
        if self.lines[row]:
            self.states.append((row, self.lines[row], self.since[row], self.now))
        self.lines[row], self.since[row] = text, self.now

    def write(self, text):
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        for part in re.findall(r"\r\n|\n|\r|\x1b\[K|[^\r\n\x1b]+|\x1b", text):
            if part in ("\r\n", "\n"):
                self.lines.append("")
                self.since.append(self.now)
            elif part == "\r":
                self.fresh = True
            elif part == "\x1b[K":
                pass
            else:
                base = "" if getattr(self, "fresh", False) else self.lines[-1]
                self.fresh = False
                self.change(len(self.lines) - 1, (base + part)[:COLUMNS])

    def finish(self):
        for row, line in enumerate(self.lines):
            if line:
                self.states.append((row, line, self.since[row], None))


def kill_a_rank(launcher):
    """One of the launcher's ranks, once rank 0 has shown its first checkpoint."""
    children = open(f"/proc/{launcher}/task/{launcher}/children").read().split()
    if len(children) > 1:
        os.kill(int(children[1]), signal.SIGKILL)


def run(screen, command, tandem, folder, kind):
    screen.write("$ ")
    for letter in command:
        screen.write(letter)
        screen.now += TYPING
    screen.write("\r\n")
    screen.now += LONGEST_WAIT
    words = [tandem if word == "tandem" else word for word in command.split()]
    if kind == "quiet":
        screen.write("...\r\n")
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(words[0], words)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    last, killed = time.time(), False
    while True:
        try:
            ready, _, _ = select.select([terminal], [], [], 60)
            data = os.read(terminal, 65536) if ready else b""
        except OSError:
            data = b""
        if not data:
            break
        screen.now += min(time.time() - last, LONGEST_WAIT)
        last = time.time()
        screen.write(data.decode(errors="replace"))
        step = re.findall(r"step (\d+)", data.decode(errors="replace"))
        if kind == "kill" and not killed and step and int(step[-1]) >= 120:
            killed = True
            kill_a_rank(pid)
    os.waitpid(pid, 0)
    screen.now += 1.2


def draw(screen, out):
    size, line_height, pad = 13, 17, 14
    char = 7.83
    first = max(0, len(screen.lines) - ROWS)
    width, height = COLUMNS * char + 2 * pad, ROWS * line_height + 2 * pad
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
             f'height="{height:.0f}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{size}">',
             f'<rect width="100%" height="100%" rx="8" fill="#10151c"/>']
    # The text scrolls when a line is begun below the last row.
    scrolls = [(row - ROWS + 1, min(since for r, _, since, _ in screen.states if r >= row))
               for row in range(ROWS, len(screen.lines)) if any(r >= row for r, _, _, _ in screen.states)]
    parts.append(f'<svg x="{pad}" y="{pad}" width="{width - 2 * pad:.0f}" height="{ROWS * line_height}">')
    parts.append(f'<g transform="translate(0 {-first * line_height})">')
    if scrolls:
        parts.append(f'<set attributeName="transform" attributeType="XML" to="translate(0 0)" begin="0s" end="{scrolls[0][1]:.2f}s"/>')
    for (rows, start), (_, end) in zip(scrolls, scrolls[1:]):
        if end > start:
            parts.append(f'<set attributeName="transform" attributeType="XML" to="translate(0 {-rows * line_height})" '
                         f'begin="{start:.2f}s" end="{end:.2f}s"/>')
    for row, text, start, end in screen.states:
        color = "#7ee787" if text.startswith("$ ") and not text.startswith("$ #") else "#8b949e" if text.startswith("$ #") else "#d6dde6"
        shown = text[2:] if text.startswith("$ #") else text
        y = (row + 1) * line_height - 4
        head = f'<text x="0" y="{y}" fill="{color}" xml:space="preserve"'
        if end is None:
            parts.append(f'{head}>{html.escape(shown)}<set attributeName="visibility" to="hidden" begin="0s" end="{max(start, 0.01):.2f}s"/></text>')
        elif end - start > 0.02:
            parts.append(f'{head} visibility="hidden">{html.escape(shown)}<set attributeName="visibility" to="visible" '
                         f'begin="{start:.2f}s" end="{end:.2f}s"/></text>')
    parts.append("</g></svg></svg>")
    with open(out, "w") as file:
        file.write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("out")
    args = parser.parse_args()
    screen = Screen()
    folder = tempfile.mkdtemp(prefix="tandem-recording-")
    shutil.copytree(os.path.join(ROOT, "configs"), os.path.join(folder, "configs"))
    try:
        for command, kind in SCENES:
            if command.startswith("#"):
                screen.write("$ " + command + "\r\n")
                screen.now += 1.0
            else:
                run(screen, command, os.path.abspath(args.tandem), folder, kind)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    screen.finish()
    draw(screen, args.out)
    print(f"{args.out}: {screen.now:.0f} s, {len(screen.lines)} lines")


main()
