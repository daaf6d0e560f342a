#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the demonstration model's tokenizer.json: byte-level BPE, learned from generated decisions.

usage: byte_pairs.py OUT_FOLDER

Needs tokenizers from PyPI. Pairs are learned within runs of letters alone, so that a word is spelled
the same behind a blank, a quote or a bracket; then the words of the layout, of the goals' sentences
and the like get their blank, for shorter prompts. A to Z are the ids 32 to 57, as every byte comes
first in the order of the byte-level alphabet.
"""
import collections
import json
import os
import random
import re
import sys

import decisions

SIZE = 2560
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
# The pattern of the tokenizer that the architecture comes with.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BLANK, LINE = "Ġ", "Ċ"  # a blank and a line feed in the byte-level alphabet
PUNCTUATION = [("-", ">"), (BLANK, "->"), (LINE, LINE), ("\\", '"'), (BLANK, '"'), ("-", "-"), (BLANK, "--"), (BLANK, "-"),
               ("=", ">"), (BLANK, "=>"), (BLANK, "["), (BLANK, "("), (BLANK, "|"), (BLANK, "/"), (BLANK, BLANK),
               ("â", "Ģ"), ("âĢ", "ľ"), ("âĢ", "Ŀ"), ("âĢ", "ĺ"), ("âĢ", "Ļ"), ("âĢ", "¢"), ("Â", "«"), ("Â", "»"), ("Â", "·")]


def frame_words():
    """Words that decisions put around labels, as often as they stand behind a blank."""
    text = [decisions.SYSTEM * 20, " Goal App Cua Driver Task family closed candidate decision Accessibility tree Options "
            "Decision select Answer with a single letter" * 20]
    for value in vars(decisions).values():
        if isinstance(value, decisions.Frames):
            text += [" " + form for form in value.seen]
    text += [" " + " ".join(words) for words in (decisions.GENERIC, decisions.ROLES, decisions.YES, decisions.NO, decisions.THINGS,
                                                 decisions.ORDINALS, decisions.SPOKEN.values())]
    text += [" " + word for group in decisions.SYNONYMS for word in group]
    return collections.Counter(word for line in text for word in re.findall(r" ([A-Za-z]+)", line))


def corpus(count=12000):
    rng = random.Random("byte pairs")
    for _ in range(count):
        made = decisions.decision(rng, rng.choice(decisions.KINDS), "seen", 2, 12)
        yield made.prompt()[0].removeprefix(decisions.SYSTEM)


def make(folder, size=SIZE, count=12000):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    frames = frame_words()
    wanted = [word for word, _ in frames.most_common(300)]
    letters = Tokenizer(models.BPE())
    letters.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[\p{L}\p{M}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    texts = list(corpus(count)) + [" ".join(word for word, n in frames.items() for _ in range(n * 60))]
    # Real words of the seen side once more, in both cases: they are what people will type.
    words = [*decisions.WORDS[False].nouns, *decisions.WORDS[False].adjectives,
             *(word.lower() for label in decisions.INTERFACE for word in label.split()),
             *(word for group in decisions.SYNONYMS for verb in group for word in verb.split()),
             *decisions.DESTRUCTIVE, *decisions.OTHER_ACTS]
    texts.append(" ".join(f"{word} {word.capitalize()}" for word in words for _ in range(count // 20)))
    letters.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL) - len(PUNCTUATION) - len(wanted) * 2 // 3, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    learned = json.loads(letters.to_str())["model"]
    vocabulary, merges = learned["vocab"], [tuple(pair) for pair in learned["merges"]]
    for left, right in [*PUNCTUATION, *((BLANK, word) for word in wanted)]:
        if len(vocabulary) == size - len(SPECIAL):
            break
        if left in vocabulary and right in vocabulary and left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    assert [tokenizer.token_to_id(letter) for letter in "AZ"] == [32, 57] and tokenizer.get_vocab_size() <= size
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                   "model_max_length": 16384, "clean_up_tokenization_spaces": False}, out, indent=1)
        out.write("\n")
    return tokenizer


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    made = make(sys.argv[1])
    print(made.get_vocab_size(), "tokens")
