"""PNG files for tests, written without any library: folders of classes that are told apart by colour."""

import struct
import zlib


def png(height, width, pixel):
    """`pixel(y, x)` gives (red, green, blue)."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in pixel(y, x)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_classes(folder, source, per_class=12, names=("cat", "dog", "owl")):
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            shade = [source.randrange(60) + (180 if c == label else 0) for c in range(3)]
            image = png(18 + i, 24, lambda y, x: [min(255, value + (x * 3 + y) % 32) for value in shade])
            (folder / name / f"{i}.png").write_bytes(image)
    return folder
