"""A reader of .wandb files that shares nothing with the program's writer, and needs no library: chunks of LevelDB's log format, whose
sums are zlib's crc32, behind W&B's own head of 7 bytes; records are protobuf messages (wandb/proto/wandb_internal.proto)."""

import json
import struct
import zlib

import event_files

BLOCK = 32768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path):
    data = path.read_bytes()
    assert data[:7] == b":W&B\xe1\xbe\x00", f"{path}: head {data[:7]!r}"
    at, parts = 7, None
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            assert not any(data[at:at + left]), f"{path}: no padding at {at}"
            at += left
            continue
        total, length, kind = struct.unpack_from("<IHB", data, at)
        chunk = data[at + 6:at + 7 + length]
        assert len(chunk) == 1 + length and 7 + length <= left, f"{path}: a chunk of {length} at {at}"
        assert total == zlib.crc32(chunk), f"{path}: sum of a chunk at {at}"
        assert (kind in (FULL, FIRST)) == (parts is None), f"{path}: chunk of kind {kind} at {at}"
        parts = (parts or b"") + chunk[1:]
        at += 7 + length
        if kind in (FULL, LAST):
            yield parts
            parts = None
    assert parts is None, f"{path}: ends within a record"


def number(text):
    return {"NaN": None, "Infinity": None, "-Infinity": None}.get(text, text) and json.loads(text)


def items(message, field):
    """{key: value} of the items of a history, a summary or a config."""
    found = {}
    for at, value in event_files.fields(message):
        if at == field:
            parts = dict(event_files.fields(value))
            found[parts[1].decode()] = number(parts[16].decode())
    return found


def read(run):
    """Of the only offline run in a run directory: (kinds of its records in order, rows, the run's id, its config, its last summary)."""
    (folder,) = (run / "wandb").glob("offline-run-*")
    (path,) = folder.glob("*.wandb")
    kinds, rows, config, summary, run_id = [], [], {}, {}, None
    for index, record in enumerate(records(path)):
        parts = dict(event_files.fields(record))
        assert parts.pop(1) == index + 1, "records are numbered one after the other"
        ((kind, message),) = parts.items()
        kinds.append({2: "history", 3: "summary", 5: "config", 17: "run", 18: "exit", 20: "final"}[kind])
        if kind == 2:
            row = items(message, 1)
            assert row["_step"] == dict(event_files.fields(dict(event_files.fields(message))[2]))[1]
            rows.append(row)
        elif kind == 3:
            summary = items(message, 1)
        elif kind == 5:
            config.update(items(message, 1))
        elif kind == 17:
            facts = dict(event_files.fields(message))
            run_id = facts[1].decode()
            config.update(items(facts[4], 1))
    assert folder.name.endswith("-" + run_id) and path.name == f"run-{run_id}.wandb", path
    return kinds, rows, run_id, config, summary
