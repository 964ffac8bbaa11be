"""Strings that a tokenizer may stumble over, the same for the same seed."""

import random

WORDS = ("the of and to in is you that it he was for on are as with his they I at be this have from or one had by word but "
         "not what all were we when your can said there use an each which she do how their if will up other about out many "
         "Tokenization internationalization don't I'll we've it's they'd I'M CAN'T ’s naïve café Straße ΑΒΓ Привет мир").split()
CODE = ("def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}", "#include <vector>\n\n\n",
        "{\"key\": [1, 2.5, null], \"s\": \"\\u00e9\\n\"}", "SELECT * FROM t WHERE a>=1;--", "<div class='a'>&nbsp;</div>\r\n",
        "https://example.com/a?b=c&d=%20", "x = y**2 // 3 -> z |> w != 0x1F_FF", "    \t  \n \n\t\n")
SPACES = (" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u0085", "\u2028", "\u180e", "\v", "\f", "\x1c", "\x1f")
EMOJI = "😀👍🏽👩‍👩‍👧‍👦🇩🇪❤️🏳️‍🌈☃✨"
MARKS = "\u0301\u0308\u0327\u0338\u20d7\u3099\u1ab0"
SCRIPTS = ((0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f),
           (0x1100, 0x11ff), (0x1e00, 0x1eff), (0x2000, 0x22ff), (0x2460, 0x24ff), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
           (0xf900, 0xfaff), (0xff00, 0xffef), (0x10000, 0x103ff), (0x1d400, 0x1d7ff), (0x1f300, 0x1f9ff), (0x20000, 0x2a6df))


def any_character(source):
    """Of any plane; no halves of surrogate pairs, which are no text."""
    while True:
        character = source.randrange(0x110000)
        if not 0xd800 <= character < 0xe000:
            return chr(character)


def one(source, added):
    """A string of parts of many kinds."""
    parts = []
    for _ in range(source.randrange(1, 12)):
        kind = source.randrange(12)
        if kind <= 3:
            parts.append(source.choice(WORDS))
            parts.append(" ")
        elif kind == 4:
            parts.append(source.choice(CODE))
        elif kind == 5:
            parts.append(source.choice(SPACES) * source.randrange(1, 4))
        elif kind == 6:
            parts.append("".join(source.choice(EMOJI) for _ in range(source.randrange(1, 5))))
        elif kind == 7:
            parts.append(source.choice("aeouAE한かй") + "".join(source.choice(MARKS) for _ in range(source.randrange(1, 4))))
        elif kind == 8:
            first, last = source.choice(SCRIPTS)
            parts.append("".join(chr(source.randrange(first, last + 1)) for _ in range(source.randrange(1, 12))))
        elif kind == 9:
            parts.append(str(source.randrange(10 ** source.randrange(1, 12))))
        elif kind == 10 and added:
            parts.append(source.choice(added))
        else:
            parts.append("".join(any_character(source) for _ in range(source.randrange(1, 5))))
        if source.random() < 0.2:
            parts.append(source.choice(WORDS)[:2])
    return "".join(parts)


def strings(seed, count, added):
    source = random.Random(seed)
    yield ""
    for _ in range(count - 1):
        yield one(source, added)
