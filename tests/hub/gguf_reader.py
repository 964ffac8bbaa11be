"""A GGUF file as plain values, read by hand."""

import struct

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, content):
        self.content, self.at = content, 0

    def number(self, kind):
        value, = struct.unpack_from("<" + kind, self.content, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.content[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item = self.number("I")
            return [self.value(item) for _ in range(self.number("Q"))]
        return self.number(NUMBERS[kind])


def floats(kind, content, count):
    if kind == F32:
        return list(struct.unpack(f"<{count}f", content))
    if kind == F16:
        return list(struct.unpack(f"<{count}e", content))
    if kind == BF16:
        return list(struct.unpack(f"<{count}f", b"".join(b"\0\0" + content[2 * i:2 * i + 2] for i in range(count))))
    values = []
    for at in range(0, len(content), 34):
        scale, *numbers = struct.unpack("<e32b", content[at:at + 34])
        values += [scale * number for number in numbers]
    return values


def size_of(kind, count):
    return {F32: 4 * count, F16: 2 * count, BF16: 2 * count, Q8_0: count // 32 * 34}[kind]


def read(path):
    """Keys, and {name: (type, shape outermost first, values)}."""
    reader = Reader(path.read_bytes())
    assert reader.content[:4] == b"GGUF"
    reader.at = 4
    assert reader.number("I") == 3
    num_tensors, num_keys = reader.number("Q"), reader.number("Q")
    keys = {}
    for _ in range(num_keys):
        name = reader.text()
        assert name not in keys, name
        keys[name] = reader.value(reader.number("I"))
    infos = []
    for _ in range(num_tensors):
        name = reader.text()
        dims = [reader.number("Q") for _ in range(reader.number("I"))]
        infos.append((name, dims[::-1], reader.number("I"), reader.number("Q")))
    begin = (reader.at + 31) // 32 * 32
    tensors, end = {}, 0
    for name, shape, kind, offset in infos:
        assert offset % 32 == 0 and offset == (end + 31) // 32 * 32, name
        count = 1
        for size in shape:
            count *= size
        end = offset + size_of(kind, count)
        tensors[name] = (kind, shape, floats(kind, reader.content[begin + offset:begin + end], count))
    assert len(reader.content) == begin + (end + 31) // 32 * 32
    return keys, tensors
