"""50 steps of small gpt2 and llama models on the GPU against PyTorch on the same GPU, from the same weights and batches:
losses within 1e-4 in fp32 and 1e-2 in bf16. Both sides compute them as tests/golden has it. 20 steps of Muon against
torch.optim.Muon, where torch has it (2.9), within 1e-2: torch makes its products in bf16.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import gpu

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
PROBE = "import sys, torch; sys.exit(not torch.cuda.is_available())"
HAS_MUON = "import sys, torch; sys.exit(not hasattr(torch.optim, 'Muon'))"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--golden", required=True, help="tandem_golden_test")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    if subprocess.run([sys.executable, "-c", PROBE], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: python3 has no torch that sees the GPU")
        sys.exit(gpu.tandem_run.SKIPPED)
    # At the goldens' own rate fp32 and bf16 part by more than the tolerance, on either side.
    agree = follows(args.golden, "--steps", str(args.steps), "--lr", "3e-4")
    if subprocess.run([sys.executable, "-c", HAS_MUON]).returncode == 0:
        agree &= follows(args.golden, "--steps", "20", "--lr", "3e-4", "--optimizer", "muon")
    else:
        print("Muon is not compared: this torch has none")
    sys.exit(not agree)


def follows(golden, *options):
    """Whether the losses of PyTorch with these options are ours too."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, GOLDEN / "make_golden.py", folder, "--device", "cuda", "--models", "gpt2,llama",
                        *options], check=True)
        done = subprocess.run([golden, "--gtest_filter=*GoldenOnCuda*"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "TANDEM_GOLDEN_DIR": folder})
    print(done.stdout)
    return done.returncode == 0 and "[  PASSED  ] 4 tests." in done.stdout


if __name__ == "__main__":
    gpu.main(main)
