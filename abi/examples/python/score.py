# SPDX-License-Identifier: Apache-2.0
"""Scores a prompt, as text, as ids and in a batch, shows the errors that a program must expect, and
checks that threads and many engines do no harm. The same in every language of abi/examples.

    score.py LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]

IDS_MODEL: a model folder without a tokenizer. OTHER_LIBRARY: one of another ABI version.
"""
from __future__ import annotations

import os
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Callable

import cua

MAX_TOKENS = 4096
OPTIONS = 3
THREADS = 8
ROUNDS = 5
ENGINES = 50


def print_score(name: str, score: cua.Score) -> None:
    shares = "".join(f" {letter} {p:.6f}" for letter, p in zip(cua.LETTERS, score.probabilities))
    print(f"{name}: {score.letter}, {score.tokens} tokens, flags {score.flags},{shares}")


def print_error(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except cua.CuaError as error:
        print(f"{name}: error {int(error.code)}: {error}")
    else:
        print(f"{name}: no error")


def print_answers(engine: cua.Engine, text: str, ids: array[int]) -> None:
    print_score("text", engine.score(cua.Prompt(text, OPTIONS)))
    print_score("ids", engine.score(cua.Prompt(ids, OPTIONS)))
    for score in engine.score_batch([cua.Prompt(text, OPTIONS), cua.Prompt(list(ids), OPTIONS), cua.Prompt("A or B?", 2)]):
        print_score("batch", score)

    try:
        engine.set_graph_mode(cua.GraphMode.EXACT)
        print("graphs: on")
    except cua.CuaError as error:
        if error.code != cua.Code.UNSUPPORTED:
            raise
        # The CPU library: the answers are the same without.
        print(f"graphs: error {int(error.code)}: {error}")
    for _ in range(3):
        print_score("again", engine.score(cua.Prompt(text, OPTIONS)))
    print("statistics: " + ", ".join(f"{name} {value}" for name, value in asdict(engine.stats()).items()))


def print_errors(library: cua.Library, path: str, model: str, engine: cua.Engine, text: str) -> None:
    try:
        cua.Library(path + ".absent")
        print("no library: no error")
    except OSError as error:
        print(f"no library: {error}")
    print_error("no model", lambda: library.open(model + "/absent"))
    print_error("too long", lambda: engine.score(cua.Prompt([1] * (MAX_TOKENS + 1), OPTIONS)))
    print_error("0 options", lambda: engine.score(cua.Prompt(text, 0)))
    print_error("27 options", lambda: engine.score(cua.Prompt(text, 27)))
    print_error("short buffer", lambda: engine.tokenize_into(text, array("I")))
    try:
        engine.tokenize_into(text, array("I"))
    except cua.CuaError as error:
        print(f"short buffer: {error.needed} needed")


def print_threads(engine: cua.Engine, text: str) -> None:
    prompt = cua.Prompt(text, OPTIONS)
    expected = engine.score(prompt).probabilities

    def equal(_: int) -> bool:
        return all(engine.score(prompt).probabilities == expected for _ in range(ROUNDS))

    with ThreadPoolExecutor(THREADS) as threads:
        all_equal = all(threads.map(equal, range(THREADS)))
    print(f"threads: {THREADS}, {'equal' if all_equal else 'DIFFERENT'} answers")


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def print_memory(library: cua.Library, model: str) -> None:
    early = 0
    for number in range(1, ENGINES + 1):
        with library.open(model) as engine:
            engine.score(cua.Prompt([1, 2, 3], OPTIONS))
        if number == ENGINES // 5:
            early = resident_kilobytes()
    print(f"memory: {early} kB after {ENGINES // 5} engines, {resident_kilobytes()} kB after {ENGINES}")


def main(arguments: list[str]) -> int:
    if len(arguments) not in (4, 6):
        print(f"usage: {arguments[0]} LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]", file=sys.stderr)
        return 2
    path, model = arguments[1:3]
    library = cua.Library(path)
    print("abi {}.{}".format(*library.version))
    print("build", library.build_info)
    with library.open(model, max_prompt_tokens=MAX_TOKENS) as engine:
        print("engine", engine.describe())
        with open(arguments[3], encoding="utf-8", newline="") as file:
            text = file.read()
        ids = engine.tokenize(text)
        print(f"prompt: {len(ids)} tokens, {ids[0]} to {ids[-1]}")
        print_answers(engine, text, ids)
        print_errors(library, path, model, engine, text)
        print_threads(engine, text)
    if len(arguments) == 6:
        ids_model, other = arguments[4:]
        with library.open(ids_model) as engine:
            print_error("no tokenizer", lambda: engine.score(cua.Prompt(text, OPTIONS)))
        print_error("other version", lambda: cua.Library(other))
        print_memory(library, ids_model)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except (cua.CuaError, OSError) as error:
        sys.exit(str(error))
