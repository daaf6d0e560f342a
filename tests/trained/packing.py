# SPDX-License-Identifier: Apache-2.0
"""Fills rows of tokens with prompts of generated decisions, in processes of its own."""
import multiprocessing
import os
import random

import numpy as np

import decisions

# How often each kind comes, once all of them have begun.
WEIGHTS = {"name": 11, "verb": 11, "paraphrase": 14, "affirm": 8, "negate": 15, "abstain": 13, "position": 6,
           "position-tree": 8, "id": 6, "id-tree": 7, "role": 3}
LATE = ("position-tree", "id-tree")  # two steps from goal to option: they begin with few options and grow slowly


def lesson(rng, progress):
    """Kind and range of options at this part (0 to 1) of the training; below 0 the first steps of a slow one."""
    if progress < 0:
        return rng.choices(("name", "verb", "affirm", "abstain"), (6, 3, 2, 1))[0], 2, 4
    weights = dict(WEIGHTS)
    for kind in LATE:
        weights[kind] *= min(1, 0.4 + progress / 0.1)
    kind = rng.choices(list(weights), list(weights.values()))[0]
    most = 5 + 21 * min(1, progress / 0.25)
    if kind in LATE:
        most = 3 + 23 * min(1, progress / 0.4)
    if rng.random() < 0.68:
        most = min(most, 10)
    return kind, 2, int(most)


class Encoder:
    """Decisions to tokens and the places in them that the losses look at."""

    def __init__(self, folder):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.head = self.tokenizer.encode(decisions.SYSTEM, add_special_tokens=False).ids

    def encode(self, made, headed=True):
        """headed: with the system's message, which is the same in all prompts."""
        text, ends, elements = made.prompt()
        skip = len(decisions.SYSTEM)
        encoded = self.tokenizer.encode(text[skip:], add_special_tokens=False)
        head = self.head if headed else []

        def place(at):
            return len(head) + encoded.char_to_token(at - 1 - skip)

        return (head + encoded.ids, made.answer, [place(at) for at in ends],
                [place(at) for at in elements] if made.target >= 0 else [], made.target, decisions.KINDS.index(made.kind))


def pack(pool, rows, length):
    """Takes prompts out of the pool, longest first, into a batch."""
    tokens = np.zeros((rows, length), np.int16)
    position = np.zeros((rows, length), np.int16)
    pool.sort(key=lambda item: len(item[0]))
    used = [0] * rows
    starts, taken = [], []
    row, left = 0, []
    while pool:
        item = pool.pop()
        size = len(item[0])
        row = next((r for r in range(rows) if used[r] + size <= length), None)
        if row is None:
            left.append(item)
            if len(left) > 40:
                break
            continue
        at = used[row]
        tokens[row, at:at + size] = item[0]
        position[row, at:at + size] = np.arange(size)
        starts.append(row * length + at)
        taken.append((row * length + at, item))
        used[row] += size
    pool.extend(left)
    for row, at in enumerate(used):
        if at < length:
            position[row, at:] = np.arange(length - at)
            starts.append(row * length + at)
    count = len(taken)
    batch = {"tokens": tokens, "position": position,
             "starts": np.array(sorted(starts) + [rows * length], np.int32),
             "last": np.zeros(count, np.int64), "answer": np.zeros(count, np.int64), "count": np.zeros(count, np.int64),
             "ends": np.zeros((count, decisions.MOST), np.int64), "elements": np.zeros((count, decisions.MOST), np.int64),
             "elements_count": np.zeros(count, np.int64), "target": np.zeros(count, np.int64), "kind": np.zeros(count, np.int64)}
    for i, (start, (ids, answer, ends, elements, target, kind)) in enumerate(taken):
        batch["last"][i] = start + len(ids) - 1
        batch["answer"][i], batch["count"][i], batch["target"][i], batch["kind"][i] = answer, len(ends), target, kind
        batch["ends"][i, :len(ends)] = np.array(ends) + start
        batch["elements"][i, :len(elements)] = np.array(elements, np.int64) + start
        batch["elements_count"][i] = len(elements)
    batch["longest"] = int(np.diff(batch["starts"]).max())
    batch["tokens_used"] = sum(len(item[0]) for _, item in taken)
    return batch


def produce(folder, seed, rows, length, progress, headed, queue):
    encoder = Encoder(folder)
    rng = random.Random(seed)
    pool, volume = [], 0
    while True:
        now = progress.value
        while volume < rows * length * 1.08:
            kind, least, most = lesson(rng, now)
            item = encoder.encode(decisions.decision(rng, kind, "seen", least, most), rng.random() < headed.value)
            if len(item[0]) <= length:
                pool.append(item)
                volume += len(item[0])
        batch = pack(pool, rows, length)
        volume = sum(len(item[0]) for item in pool)
        queue.put(batch)


class Feed:
    """Batches from processes; seeds differ from process to process. `progress` is what they teach by, `headed` the share with the
    system's message."""

    def __init__(self, folder, seed, rows, length, processes):
        context = multiprocessing.get_context("fork")
        self.progress = context.Value("d", 0.0, lock=False)
        self.headed = context.Value("d", 1.0, lock=False)
        self.queue = context.Queue(maxsize=2 * processes + 4)
        self.processes = [context.Process(target=produce, daemon=True, args=(
            folder, f"{seed}/{i}", rows, length, self.progress, self.headed, self.queue)) for i in range(processes)]
        for process in self.processes:
            process.start()

    def close(self):
        for process in self.processes:
            process.terminate()


def fixed_batches(folder, sets, rows, length):
    """Batches of decisions that are there already, each of one list."""
    encoder = Encoder(folder)
    for name, made in sets:
        pool = [item for item in map(encoder.encode, made) if len(item[0]) <= length]
        while pool:
            yield name, pack(pool, rows, length)
