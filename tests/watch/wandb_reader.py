"""Compares what W&B's own reader gives back of a run with metrics.jsonl, after four kills.

Needs a python3 with protobuf, and a folder with `wandb/sdk/internal/datastore.py` and the modules that protoc makes of
`wandb/proto/wandb_{base,telemetry,internal}.proto`, out of W&B's public sources; CI has a reader of its own (wandb_files.py).
"""

import argparse
import json
import pathlib
import sys
import tempfile

import tensorboard_reader


def read(folder, run):
    sys.path.insert(0, str(folder))
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal import datastore
    (path,) = (run / "wandb").glob("offline-run-*/*.wandb")
    store = datastore.DataStore()
    store.open_for_scan(str(path))
    kinds, rows, unknown = [], [], 0
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        unknown += len(record.UnknownFields()) if hasattr(record, "UnknownFields") else 0
        kinds.append(record.WhichOneof("record_type"))
        if kinds[-1] == "history":
            rows.append({item.key: json.loads(item.value_json) for item in record.history.item})
            assert rows[-1]["_step"] == record.history.step.num
    return kinds, rows, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--wandb", required=True, type=pathlib.Path, help="the folder that has W&B's sources")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-wandb-") as folder:
        run = tensorboard_reader.killed_run(pathlib.Path(options.tandem).resolve(), pathlib.Path(folder), {"wandb": "offline"})
        kinds, found, unknown = read(options.wandb.resolve(), run)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = [{"_step" if key == "step" else key: value for key, value in row.items() if key != "time"} for row in rows]
    same = expected == [{key: value for key, value in row.items() if key not in ("_runtime", "_timestamp")} for row in found]
    print(f"{len(rows)} steps; W&B's reader gives {len(found)} rows, {'the same' if same else 'others'}, in {len(kinds)} records, "
          f"{unknown} unknown fields; kinds {sorted(set(kinds))}")
    sys.exit(not same or unknown > 0)


if __name__ == "__main__":
    main()
