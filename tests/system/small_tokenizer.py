"""A tokenizer.json as small as they get: every byte, and some words of its own."""

import json

WORDS = ("the", "owl", "cat", "reads", "book", "night")
END = "<|endoftext|>"


def alphabet():
    """The characters that byte-level vocabularies write the 256 bytes with."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def write(folder, words=WORDS):
    """Into a directory, as a model's is. Returns the directory."""
    vocabulary = {character: byte for byte, character in enumerate(alphabet())}
    merges = []
    for word in (form for word in words for form in ("Ġ" + word, word)):
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append([word[:end - 1], word[end - 1]])
    end = len(vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": end, "content": END, "special": True, "normalized": False}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder
