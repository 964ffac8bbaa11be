#!/usr/bin/env bash
# Installs the library into a fresh prefix, builds examples/own_model against it with find_package, and trains it: what
# docs/own-model.md tells a user to do.  own_model.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$source/examples/own_model" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
cd "$work"
build/own_model "$source/examples/own_model/config.yaml"
python3 - <<'PYTHON'
import json
rows = [json.loads(line) for line in open("runs/own-model/metrics.jsonl")]
assert len(rows) == 50, len(rows)
assert rows[-1]["loss"] < 0.5 * rows[0]["loss"], (rows[0]["loss"], rows[-1]["loss"])
PYTHON
