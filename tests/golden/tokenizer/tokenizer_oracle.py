#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tokenize_strings with the `tokenizers` package from PyPI, or with its recorded ids.

tokenizer_oracle.py TOOL DATA [--count N] [--seed N]    against the package; 77 where it is missing
tokenizer_oracle.py TOOL DATA --recorded FILE           against a record: standard library only
tokenizer_oracle.py TOOL DATA --record FILE             writes a record

DATA is the folder of tokenizer.json. A record is xz-compressed JSON: [[text, ids], ...].
"""

import argparse
import collections
import json
import lzma
import pathlib
import struct
import subprocess
import sys
import unicodedata

import oracle_strings

SKIPPED = 77


def ours(tool, data, texts):
    encoded = [text.encode() for text in texts]
    stream = b"".join(struct.pack("<I", len(text)) + text for text in encoded)
    done = subprocess.run([tool, str(data / "tokenizer.json")], input=stream, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{tool} failed with {done.returncode}")
    numbers = memoryview(done.stdout).cast("I")
    results = []
    at = 0
    while at < len(numbers):
        results.append(numbers[at + 1:at + 1 + numbers[at]].tolist())
        at += 1 + numbers[at]
    if len(results) != len(texts):
        sys.exit(f"{len(texts)} strings went in, {len(results)} came out")
    return results


def load_oracle(tokenizers, data):
    """The package numbers added tokens from the size of the vocabulary on, and this vocabulary
    lacks a few texts; stand-ins that no merge makes fill it up."""
    document = json.loads((data / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = document["model"]["vocab"]
    used = set(vocabulary.values())
    first_added = min(token["id"] for token in document["added_tokens"])
    for number in range(first_added):
        if number not in used:
            vocabulary[f"\ue000{number}"] = number
    oracle = tokenizers.Tokenizer.from_str(json.dumps(document))
    for token in document["added_tokens"]:
        if oracle.token_to_id(token["content"]) != token["id"]:
            sys.exit(f"the package gives {token['content']} another id")
    return oracle, document


def generate(oracle, document, arguments):
    texts = [oracle.decode([number]) for number in range(0, 248044, 3)]
    strings = oracle_strings.Strings(
        arguments.seed, [token["content"] for token in document["added_tokens"]],
        [text for text in texts if text and "\ufffd" not in text and text[0] != "\ue000"])
    return list(strings.generate(arguments.count))


def compare(kinds, texts, expected, found):
    total = collections.Counter(kinds)
    wrong = collections.Counter()
    for kind, text, want, have in zip(kinds, texts, expected, found):
        if want != have:
            wrong[kind] += 1
            if wrong[kind] <= 3:
                at = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b),
                          min(len(want), len(have)))
                print(f"differs ({kind}) at id {at}: {ascii(text[:200])}\n"
                      f"  expected ...{want[max(0, at - 2):at + 6]}\n"
                      f"  found    ...{have[max(0, at - 2):at + 6]}")
    for kind in sorted(total):
        print(f"{kind:20} {total[kind]:6} strings, {wrong[kind]} differ")
    print(f"{len(texts)} strings, {sum(map(len, texts))} characters, "
          f"{sum(map(len, expected))} ids: {sum(wrong.values())} strings differ")
    return 1 if wrong or not texts else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recorded")
    parser.add_argument("--record")
    arguments = parser.parse_args()

    if arguments.recorded:
        with lzma.open(arguments.recorded, "rt", encoding="utf-8") as stream:
            record = json.load(stream)
        texts = [text for text, _ in record]
        return compare(["recorded"] * len(texts), texts, [ids for _, ids in record],
                       ours(arguments.tool, arguments.data, texts))

    try:
        import tokenizers
    except ImportError:
        print("SKIPPED: the Python package `tokenizers` is not installed for", sys.executable)
        return SKIPPED
    if unicodedata.unidata_version != oracle_strings.UNICODE:
        print(f"SKIPPED: this Python knows Unicode {unicodedata.unidata_version}; the strings are "
              f"made with {oracle_strings.UNICODE} (Python 3.11)")
        return SKIPPED
    oracle, document = load_oracle(tokenizers, arguments.data)
    kinds, texts = zip(*generate(oracle, document, arguments))
    expected = [encoding.ids for encoding in oracle.encode_batch(list(texts), add_special_tokens=False)]
    if arguments.record:
        # Every tenth of the systematic strings, the long runs, and the short ones of the others.
        keep = [i for i, (kind, text) in enumerate(zip(kinds, texts))
                if (i % 10 == 0 if kind == "every_code_point" else
                    kind == "long_run" or len(text) <= 60)]
        record = [[texts[i], expected[i]] for i in keep]
        with lzma.open(arguments.record, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as stream:
            json.dump(record, stream, ensure_ascii=False, separators=(",", ":"))
        print(f"recorded {len(record)} strings of tokenizers {tokenizers.__version__}")
    print(f"tokenizers {tokenizers.__version__}, seed {arguments.seed}")
    return compare(kinds, texts, expected, ours(arguments.tool, arguments.data, texts))


if __name__ == "__main__":
    sys.exit(main())
