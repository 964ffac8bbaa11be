"""A reader of TensorBoard's event files that shares nothing with the program's writer, and needs no library."""

import struct

POLYNOMIAL = 0x82F63B78


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        (sum_of_length,) = struct.unpack_from("<I", data, at + 8)
        assert sum_of_length == masked_crc32c(data[at:at + 8]), f"{path}: sum of a length at {at}"
        record = data[at + 12:at + 12 + length]
        (sum_of_record,) = struct.unpack_from("<I", data, at + 12 + length)
        assert sum_of_record == masked_crc32c(record), f"{path}: sum of a record at {at}"
        yield record
        at += 16 + length


def fields(message):
    """(number, value) of each field of a protobuf message: an int, the bytes, or the bits of a fixed number."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, message[at:at + size]
        at += size


def scalars(run):
    """{tag: [(step, bits of the fp32)]} of all files, in the order of their names."""
    found = {}
    for path in sorted((run / "tensorboard").glob("*tfevents*")):
        for record in records(path):
            step, summaries = 0, []
            for number, value in fields(record):
                if number == 2:
                    step = value
                elif number == 5:
                    summaries.append(value)
            for summary in summaries:
                for _, value in fields(summary):
                    parts = dict(fields(value))
                    if 2 in parts:
                        found.setdefault(parts[1].decode(), []).append((step, parts[2]))
    return found


def histograms(run):
    """{tag: [(step, number of values, {limit: count})]}"""
    found = {}
    for path in sorted((run / "tensorboard").glob("*tfevents*")):
        for record in records(path):
            parts = list(fields(record))
            step = dict(parts).get(2, 0)
            for _, value in [item for number, summary in parts if number == 5 for item in fields(summary)]:
                tag, shape = dict(fields(value)).get(1), dict(fields(value)).get(5)
                if shape is None:
                    continue
                shape = dict(fields(shape))
                limits, counts = ([number for (number,) in struct.iter_unpack("<d", shape[at])] for at in (6, 7))
                assert limits == sorted(limits) and len(limits) == len(counts)
                found.setdefault(tag.decode(), []).append((step, struct.unpack("<d", shape[3])[0], dict(zip(limits, counts))))
    return found


def expected(rows):
    """The same of the rows of metrics.jsonl."""
    found = {}
    for row in rows:
        for key, value in row.items():
            if key not in ("step", "time"):
                value = float("nan") if value is None else value
                found.setdefault(key, []).append((row["step"], struct.pack("<f", value)))
    return found
