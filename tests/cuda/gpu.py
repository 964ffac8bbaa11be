"""What the tests on a GPU share. Where there is none, or Tandem was built without CUDA, they skip and say so."""

import pathlib
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("system", "dist")]
import tandem_run  # noqa: E402


def main(run=tandem_run.main):
    program = sys.argv[sys.argv.index("--tandem") + 1]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if "cuda not built" in version or "no GPU" in version:
        print(f"skipped: {version}")
        sys.exit(tandem_run.SKIPPED)
    run()
