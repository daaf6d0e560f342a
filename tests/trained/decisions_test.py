#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The generator of decisions: the same from run to run, its splits apart, its options and answers valid.

usage: decisions_test.py
"""
import hashlib
import json
import os
import re
import subprocess
import sys

import decisions

failures = []


def check(name, condition, *detail):
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def sample(split, count=60, least=2, most=26):
    return [made for kind in decisions.KINDS for made in decisions.decisions(3, kind, split, count, least, most)]


def digest():
    text = json.dumps([[made.request(), made.answer] for split in decisions.SPLITS for made in sample(split, 4)])
    return hashlib.sha256(text.encode()).hexdigest()


def texts(made):
    return [o if isinstance(o, str) else json.dumps(o, ensure_ascii=False) for o in made.options]


def check_valid(made):
    where = (made.kind, made.split, made.goal)
    options = texts(made)
    check("number of options", 2 <= len(options) <= 26, *where)
    check("options differ", len(set(options)) == len(options), *where)
    check("answer is an option", 0 <= made.answer < len(options), *where)
    prompt, ends, elements = made.prompt()
    check("no mark is left", decisions.MARK not in prompt and decisions.MARK not in json.dumps(made.request(), ensure_ascii=False))
    check("nothing is left to fill in", not re.search(r"\{[A-Za-z0-9]{1,4}\}", made.goal + "".join(options)), *where, *options)
    lines = [prompt[:end].rstrip("\n").rsplit("\n", 1)[-1] for end in ends]
    check("option lines", all(line.startswith(f"{letter}. Decision \"") and line.endswith('" -> select')
                              for letter, line in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", lines)) and len(lines) == len(options), lines)
    state = made.state if isinstance(made.state, str) else json.dumps(made.state, ensure_ascii=False)
    check("the state stands in the prompt", f"\n{state}\n\nOptions:\n" in prompt, *where)
    check("the target is an element", -1 <= made.target < max(1, len(elements)), *where)
    right = options[made.answer]
    if made.kind == "id":
        ids = [i for i in re.findall(r"[A-Za-z0-9_-]+(?:\.\d+)?", made.goal) if re.search(r"\d", i) and contains(right, i)]
        check("one option has the id", len(ids) > 0 and sum(contains(o, ids[0]) for o in options) == 1, *where, *options)
    if made.kind in ("name", "verb"):
        others = [o for o in options if o != right]
        check("the goal names the answer best", overlap(right, made.goal) >= max(overlap(o, made.goal) for o in others) - 1, *where, *options)
    if made.kind == "position" and (found := re.search(r"\b(first|second|third|fourth)\b(?! to)", made.goal.lower())):
        check("position", made.answer == ["first", "second", "third", "fourth"].index(found[1]) or "first," in made.goal.lower(),
              *where, made.answer)


def contains(text, element):
    return re.search(rf"(?<![A-Za-z0-9_.]){re.escape(element)}(?![A-Za-z0-9])", text) is not None


def overlap(option, goal):
    words = set(re.findall(r"\w+", goal.lower()))
    return sum(word in words for word in set(re.findall(r"\w+", option.lower())))


def main():
    if sys.argv[1:] == ["--digest"]:
        print(digest())
        return 0
    runs = [subprocess.run([sys.executable, __file__, "--digest"], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                           capture_output=True, text=True).stdout for seed in ("1", "2")]
    check("the same from run to run", runs[0] == runs[1])
    pools = [value for value in vars(decisions).values() if isinstance(value, decisions.Frames)]
    held_forms = {form for pool in pools for form in pool.held}
    check("no form is held back here and seen there", not held_forms & {form for pool in pools for form in pool.seen},
          held_forms & {form for pool in pools for form in pool.seen})
    check("pools of frames", len(pools) > 25 and sum(len(pool.seen) for pool in pools) > 400)
    held_words = set(decisions.WORDS[True].nouns) | set(decisions.WORDS[True].adjectives)
    seen_words = set(decisions.WORDS[False].nouns) | set(decisions.WORDS[False].adjectives)
    check("no word is on both sides", not held_words & seen_words and len(held_words) > 80)
    made = {split: sample(split) for split in decisions.SPLITS}
    for one in (one for group in made.values() for one in group):
        check_valid(one)

    def words_of(one):
        return set(re.findall(r"[a-z]+", one.prompt()[0].removeprefix(decisions.SYSTEM).lower()))

    for split, (new_words, new_frames) in decisions.SPLITS.items():
        for one in made[split]:
            other = seen_words - decisions.FIXED if new_words else held_words
            # A held word may be the plural of a seen one, or a made-up word; neither is drawn as a word.
            check(f"{split}: no word of the other side", not words_of(one) & other, one.kind, one.goal, words_of(one) & other)
            unseen = [form for form in one.frames if form in held_forms]
            check(f"{split}: frames", bool(unseen) == new_frames, one.kind, one.frames)
    compositions = {one.frames for one in made["seen"]} & {one.frames for one in made["templates"]}
    check("no composition is on both sides", not compositions)
    letters = {one.answer for group in made.values() for one in group}
    check("every letter is an answer", len(letters) == 26, letters)
    few = sample("seen", 10, 2, 10)
    check("at most ten", max(len(one.options) for one in few) == 10)
    print(f"{sum(map(len, made.values()))} decisions, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
