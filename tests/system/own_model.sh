#!/usr/bin/env bash
# Installs the library into a fresh prefix, builds examples/own_model against it with find_package, and tries every
# command on its model: what docs/own-model.md tells a user to do.  own_model.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$source/examples/own_model" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
cd "$work"
own=build/own_model config=$source/examples/own_model/config.yaml

fail() { echo "own_model.sh: $*" >&2; exit 1; }
shows() {  # shows TEXT COMMAND...: it succeeds and prints the text
  local text=$1 output
  shift
  output=$("$@" 2>&1) || fail "'$*' ended with $?: $output"
  [[ $output == *"$text"* ]] || fail "'$*' shows no '$text': $output"
}
refuses() {  # refuses CODE TEXT COMMAND...: it ends with the code after one line that has the text
  local code=$1 text=$2 output ended=0
  shift 2
  output=$("$@" 2>&1) || ended=$?
  [[ $ended == "$code" ]] || fail "'$*' ended with $ended, expected $code: $output"
  [[ $output == *"$text"* && $(wc -l <<<"$output") == 1 ]] || fail "'$*' does not say '$text' in one line: $output"
}

"$own" train "$config"
python3 - <<'PYTHON'
import json
rows = [json.loads(line) for line in open("runs/own-model/metrics.jsonl")]
assert len(rows) == 50, len(rows)
assert rows[-1]["loss"] < 0.5 * rows[0]["loss"], (rows[0]["loss"], rows[-1]["loss"])
names = {tensor["name"] for tensor in json.load(open("runs/own-model/checkpoints/latest/manifest.json"))["tensors"]}
assert "blocks.1.up.weight" in names, names  # parallel_gpt's name, and nobody else's
for row in rows:  # its own metrics: means of squares of what adds up from block to block
    assert 0 < row["metric/stream/0"] < row["metric/stream/1"], row
PYTHON

# It goes on with a changed key, and says whose flags these are.
shows "own_model train" "$own" train --help
shows "Example:
  own_model sample " "$own" sample --help
"$own" train "$config" --set train.steps=55 2>/dev/null
[[ $(wc -l <runs/own-model/metrics.jsonl) == 55 ]] || fail "--set train.steps=55 did not count"
refuses 2 "did you mean 'train'? See own_model --help" "$own" trian "$config"
refuses 2 "See own_model train --help" "$own" train "$config" --sets train.steps=1

# Every command runs this model.
shows "55" "$own" inspect runs/own-model
shows "eval loss" "$own" evaluate runs/own-model --samples 8
shows "Once" "$own" sample runs/own-model --prompt Once --tokens 20
shows "train.steps" "$own" explain "$config"
shows "blocks.1.up.weight" "$own" plan "$config" --dump after:model
shows "matmul" "$own" profile "$config" --steps 1
shows "tokens/s" "$own" bench "$config" --steps 1 --warmup 1
for mesh in "parallel.data=2 --set parallel.strategy=fsdp" parallel.tensor=2 parallel.pipeline=2; do
  run=runs/${mesh%%=*}
  # shellcheck disable=SC2086  # words of flags
  "$own" launch --nproc-per-node 2 train "$config" --set $mesh --set train.micro_batch=4 --set train.steps=5 \
    --run-dir "$run" >/dev/null 2>&1 || fail "two ranks with $mesh ended with $?"
  [[ $(wc -l <"$run/metrics.jsonl") == 5 ]] || fail "two ranks with $mesh did not train five steps"
  python3 - runs/own-model "$run" <<'PYTHON' || fail "two ranks with $mesh have other metrics than one"
import json, sys
one, two = ([json.loads(line) for line in open(f"{run}/metrics.jsonl")][:2] for run in sys.argv[1:])
for a, b in zip(one, two):
    for key in ("loss", "metric/stream/0", "metric/stream/1"):
        assert abs(a[key] / b[key] - 1) < 1e-3, (key, a[key], b[key])
PYTHON
done
shows "equal bit for bit" "$own" inspect runs/own-model --compare runs/own-model
# `tandem` has no such model, and takes none of its weights for its own.
refuses 4 "another model" prefix/bin/tandem evaluate runs/own-model
