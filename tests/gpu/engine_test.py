#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CUDA library through its ABI: one set of bits whatever the way, and memory that stays flat.

usage: engine_test.py --lib FILE --model DIR --plans FILE
                      FILE: of cua-bench tune, for this card and model
"""
import argparse
import os
import random
import re
import sys
import tempfile
import threading
import time

from library import Engine, LibraryError

failures = []
checks = 0
OFF, EXACT, BUCKET = 0, 1, 2
REPLAYED, CAPTURED, BATCHED = 1, 2, 4


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def bits(score):
    return bytes(score.logits) + bytes(score.probabilities)


def ids_of(length, vocabulary, seed):
    draw = random.Random(seed)
    return [draw.randrange(vocabulary) for _ in range(length)]


def graphs(lib, model):
    draw = random.Random(5)
    with Engine(lib, model) as eager, Engine(lib, model, graph_mode=EXACT) as engine:
        vocabulary = engine.describe()["vocabulary"]
        lengths = [1, 2, 3, 63, 64, 65, 128, 129, 200, 218, 511, 700]
        expected = {}
        for length in lengths:
            for seed in range(3):
                expected[length, seed] = bits(eager.score([ids_of(length, vocabulary, seed)])[0])
        flags = set()
        for i in range(300):  # 12 lengths on 8 places: captures, replays, evictions, captures again
            length, seed = draw.choice(lengths), draw.randrange(3)
            score = engine.score([ids_of(length, vocabulary, seed)])[0]
            flags.add(score.flags)
            check(f"graph equals eager, {length} tokens, turn {i}", bits(score) == expected[length, seed], score.flags)
        check("captured and replayed", flags == {CAPTURED, REPLAYED}, flags)
        stats = engine.stats()
        check("evictions", stats.evictions == stats.captures - 8 and stats.evictions > 0, stats.evictions, stats.captures)
        check("replays", stats.replays > 50 and stats.fallbacks == 0, stats.replays)
        # Growth of the scratch clears the captures, and they come back.
        score = engine.score([ids_of(218, vocabulary, 0)])[0]
        score = engine.score([ids_of(218, vocabulary, 1)])[0]
        check("replayed before growth", score.flags == REPLAYED)
        long = ids_of(5000, vocabulary, 1)
        check("long prompt", bits(engine.score([long])[0]) == bits(eager.score([long])[0]))
        score = engine.score([ids_of(218, vocabulary, 0)])[0]
        check("captured again after growth", score.flags == CAPTURED and bits(score) == expected[218, 0], score.flags)
        engine.set_graph_mode(OFF)
        score = engine.score([ids_of(218, vocabulary, 0)])[0]
        check("off", score.flags == 0 and bits(score) == expected[218, 0])
        engine.set_graph_mode(EXACT)
        score = engine.score([ids_of(218, vocabulary, 0)])[0]
        check("on again", score.flags == CAPTURED)


def buckets(lib, model):
    """Every row count that is a bucket or beside one, replayed from the first request on."""
    most = 2048
    with Engine(lib, model) as eager, Engine(lib, model, graph_mode=BUCKET) as engine:
        if not eager.describe()["batch_invariant"]:
            print("buckets: SKIPPED, the matrix products of this card depend on the number of rows")
            return
        vocabulary = engine.describe()["vocabulary"]
        loaded = engine.stats()
        check("captured while loading", loaded.captures > 50 and loaded.fallbacks == 0, loaded.captures)
        draw = random.Random(6)
        lengths = [*range(1, 301), *sorted(draw.sample(range(301, most), 60)),
                   *(n + d for n in range(304, most, 160) for d in (-1, 0, 1)), most - 1, most]
        draw.shuffle(lengths)
        for length in lengths:
            ids = ids_of(length, vocabulary, length)
            score = engine.score([ids])[0]
            check(f"bucket equals eager, {length} tokens", bits(score) == bits(eager.score([ids])[0]))
            check(f"bucket replays, {length} tokens", score.flags == REPLAYED, score.flags)
        stats = engine.stats()
        check("every one a replay", stats.replays == len(lengths), stats.replays)
        # Beyond the buckets, and packed: no graph; and no growth of scratch drops the graphs.
        for prompts in ([ids_of(most + 1, vocabulary, 1)], [ids_of(9000, vocabulary, 2)],
                        [ids_of(n, vocabulary, n) for n in (1, 5, 218, 300)],
                        [ids_of(7, vocabulary, n) for n in range(1000)]):
            scores = engine.score(prompts)
            check("without a graph", [bits(s) for s in scores] == [bits(s) for s in eager.score(prompts)]
                  and not scores[0].flags & (REPLAYED | CAPTURED), scores[0].flags)
        ids = ids_of(218, vocabulary, 3)
        score = engine.score([ids])[0]
        check("still a replay", score.flags == REPLAYED and bits(score) == bits(eager.score([ids])[0]), score.flags)
        check("nothing was captured since", engine.stats().captures == loaded.captures)
        for mode, flags in ((OFF, 0), (BUCKET, REPLAYED), (EXACT, CAPTURED), (EXACT, REPLAYED), (BUCKET, REPLAYED),
                            (OFF, 0), (EXACT, CAPTURED)):
            engine.set_graph_mode(mode)
            score = engine.score([ids])[0]
            check(f"mode {mode}", score.flags == flags and bits(score) == bits(eager.score([ids])[0]), score.flags)
        text_engine = engine.describe()["tokenizer"]
    with Engine(lib, model, max_prompt_tokens=100, graph_mode=BUCKET) as short, Engine(lib, model) as eager:
        ids = ids_of(100, vocabulary, 4)  # its bucket is longer than a prompt may be
        score = short.score([ids])[0]
        check("short prompts only", score.flags == REPLAYED and bits(score) == bits(eager.score([ids])[0]), score.flags)
    if text_engine:
        prefix = "the same words again and again " * 20
        with Engine(lib, model) as plain, Engine(lib, model, prefix=prefix, graph_mode=BUCKET) as started:
            for tail in ("", "x", " and more", " tail" * 300):
                for text in (prefix + tail, tail + "no " + prefix):
                    ids = plain.tokenize(text)
                    score = started.score([ids])[0]
                    check(f"bucket and prefix, {len(ids)} tokens",
                          score.flags == REPLAYED and bits(score) == bits(plain.score([ids])[0]), score.flags)


def flat_memory(lib, model):
    with Engine(lib, model, graph_mode=EXACT) as engine:
        vocabulary = engine.describe()["vocabulary"]
        engine.score([ids_of(1000, vocabulary, 0)])
        before = free_bytes()
        for length in range(300, 500):
            engine.score([ids_of(length, vocabulary, length)])
            engine.score([ids_of(length, vocabulary, length + 1)])
        after = free_bytes()
        check("200 lengths, memory flat", before - after < 64 << 20, before - after)
        check("200 captures", engine.stats().captures >= 200, engine.stats().captures)
    Engine(lib, model).close()
    before = free_bytes()
    for _ in range(20):
        with Engine(lib, model, graph_mode=EXACT) as engine:
            engine.score([ids_of(100, vocabulary, 0)])
            engine.score([ids_of(100, vocabulary, 1)])
    check("20 times open and close, memory flat", abs(before - free_bytes()) < 8 << 20, before - free_bytes())


def free_bytes():
    import torch
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def company(lib, model):
    draw = random.Random(9)
    with Engine(lib, model) as engine, Engine(lib, model, max_batch_tokens=500) as narrow:
        if not engine.describe()["batch_invariant"]:
            print("company: SKIPPED, the matrix products of this card depend on the number of rows")
            return
        vocabulary = engine.describe()["vocabulary"]
        prompts = [ids_of(draw.choice([1, 2, 17, 63, 64, 65, 100, 218, 400, 1, 900]), vocabulary, seed)
                   for seed in range(40)]
        alone = [bits(engine.score([p])[0]) for p in prompts]
        for turn in range(10):
            order = draw.sample(range(40), draw.randint(2, 40))
            for name, e in (("packed", engine), ("split into passes", narrow)):
                scores = e.score([prompts[i] for i in order])
                check(f"{name}, turn {turn}", [bits(s) for s in scores] == [alone[i] for i in order])
        check("batched", engine.score(prompts[:2])[0].flags == BATCHED)
        text_engine = engine.describe()["tokenizer"]
    if text_engine:
        prefix = "the same words again and again " * 20
        with Engine(lib, model) as plain, Engine(lib, model, prefix=prefix, graph_mode=EXACT) as started:
            check("prefix kept", started.describe()["prefix_tokens"] >= 64, started.describe())
            for tail in ("", "x", " and more", " tail" * 300):
                ids = plain.tokenize(prefix + tail)
                for turn in range(3):
                    check(f"prefix {len(tail)} {turn}", bits(started.score([ids])[0]) == bits(plain.score([ids])[0]))
            mixed = [plain.tokenize(prefix + " a"), plain.tokenize("b"), plain.tokenize(prefix + " c" * 90)]
            check("prefix in company", [bits(s) for s in started.score(mixed)] == [bits(plain.score([m])[0]) for m in mixed])


def threads(lib, model):
    with Engine(lib, model, graph_mode=EXACT) as first, Engine(lib, model) as second:
        vocabulary = first.describe()["vocabulary"]
        prompts = [ids_of(50 + 7 * i, vocabulary, i) for i in range(8)]
        alone = [bits(second.score([p])[0]) for p in prompts]
        wrong = []

        def work(i):
            for _ in range(20):
                for engine in (first, second):
                    if bits(engine.score([prompts[i]])[0]) != alone[i]:
                        wrong.append(i)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        check("8 threads, two engines", not wrong, wrong)


def beside_other_threads(lib, model):
    """Captures while another thread allocates, and while it waits for the whole device."""
    import torch

    def allocate():
        block = torch.empty(8 << 20, device="cuda")
        del block
        torch.cuda.empty_cache()

    def wait_for_device():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            pass  # CUDA refuses it while a stream is being captured

    def wait_now_and_then():
        wait_for_device()
        time.sleep(0.01)

    with Engine(lib, model) as eager:
        vocabulary = eager.describe()["vocabulary"]
        expected = {n: bits(eager.score([ids_of(n, vocabulary, 0)])[0]) for n in range(20, 60)}
    for name, work in (("cudaMalloc", allocate), ("cudaDeviceSynchronize now and then", wait_now_and_then),
                       ("cudaDeviceSynchronize without a pause", wait_for_device)):
        stop = threading.Event()

        def busy(work=work, stop=stop):
            while not stop.is_set():
                work()

        worker = threading.Thread(target=busy)
        worker.start()
        with Engine(lib, model, graph_mode=EXACT) as engine:
            right = [bits(engine.score([ids_of(n, vocabulary, 0)])[0]) == expected[n] for n in expected for _ in (0, 1)]
            stats = engine.stats()
        stop.set()
        worker.join()
        check(f"right beside {name} of another thread", all(right))
        print(f"beside {name}: {stats.captures} captures, {stats.fallbacks} fallbacks")
        if "pause" not in name:
            check(f"captures beside {name} of another thread", stats.captures == 40 and stats.fallbacks == 0)


def refusals(lib, model):
    def code(**options):
        try:
            Engine(lib, model, **options).close()
            return 0, ""
        except LibraryError as error:
            return error.code, str(error)

    got = code(device=99)
    check("device 99", got[0] == 4 and "99" in got[1], got)
    check("device -1", code(device=-1)[0] == 4)
    check("fp8", code(precision=1)[0] == 8)


def plans(lib, model, path):
    """The bits of timed plans, whatever a file says; and each refusal."""
    with open(path, encoding="ascii") as file:
        text = file.read()
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("plan "))

    def changed(pattern, to):
        found = re.subn(pattern, to, text, count=1, flags=re.M)
        assert found[1] == 1, pattern
        return found[0]

    with tempfile.TemporaryDirectory() as folder, Engine(lib, model) as timed:
        other = os.path.join(folder, "plans")
        if not timed.describe()["batch_invariant"]:
            print("plans: SKIPPED, the matrix products of this card depend on the number of rows")
            return
        vocabulary = timed.describe()["vocabulary"]
        prompts = [ids_of(n, vocabulary, n) for n in (1, 64, 65, 218, 512, 700, 3000)]
        expected = [bits(timed.score([ids])[0]) for ids in prompts]
        half = "\n".join(lines[:first] + lines[first::2]).rstrip("\n") + "\n"
        none = "\n".join(lines[:first]) + "\n"
        for name, content in (("whole", text), ("half", half), ("none", none)):
            with open(other, "w", encoding="ascii") as file:
                file.write(content)
            with Engine(lib, model, plans=other) as engine:
                check(f"plans {name}: invariant", engine.describe()["batch_invariant"])
                check(f"plans {name}: bits", [bits(engine.score([ids])[0]) for ids in prompts] == expected)
        for name, content, needle in (
                ("format", changed("plans/1", "plans/2"), "plans/2"), ("card", changed("^gpu .*", "gpu Another"), "Another"),
                ("capability", changed("^capability .*", "capability 10"), "capability"),
                ("version", changed("^cublaslt .*", "cublaslt 1"), "cuBLASLt 1"), ("cut", text[:-5], "cut"),
                ("algorithm", changed("algorithm=[0-9]+", "algorithm=2147483647"), "does not accept"),
                ("tile", changed("tile=[0-9]+", "tile=4294967295"), "does not accept")):
            with open(other, "w", encoding="ascii") as file:
                file.write(content)
            try:
                Engine(lib, model, plans=other).close()
                check(f"plans: {name} is refused", False)
            except LibraryError as error:
                check(f"plans: {name}", error.code == 1 and needle in str(error) and other in str(error), error)
        try:
            Engine(lib, model, plans=folder).close()
            check("plans: a folder is refused", False)
        except LibraryError as error:
            check("plans: a folder", error.code == 1, error)
        check("the other engine works", [bits(timed.score([ids])[0]) for ids in prompts] == expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--plans", required=True)
    options = parser.parse_args()
    for test in (refusals, graphs, buckets, company, threads, flat_memory, beside_other_threads):
        test(options.lib, options.model)
    plans(options.lib, options.model, options.plans)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
