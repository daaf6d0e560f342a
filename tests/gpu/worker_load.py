#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decisions a second of the worker on a GPU, by connections, with batches and without, in turn in the same run.

usage: worker_load.py --server FILE --lib FILE --model DIR --requests FILE [--seconds N] [--rounds N] [--out FILE]

Each connection sends one question at a time, keeps its connection, and never repeats a prompt: first prompts of 218
tokens, then those of the request data. Latencies are the client's, and this client is Python.
"""
import argparse
import datetime
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from worker import Worker

PEER = 177.0  # prompts of 218 tokens a second, one after the other, of the best peer on this card (5.64 ms each)
WORDS = "button list window menu item field label open save close cancel delete copy name size date".split()


def prompt(draw, words):
    return {"model": "cua-s1-4b-0.2", "state": " ".join(draw.choice(WORDS) for _ in range(words)),
            "questions": {"q": {"type": "choice", "instructions": "Close the window.",
                                "criteria": {"close": None, "save": None, "cancel": None}}}}


def of_length(worker, tokens):
    """How many words give a prompt of so many tokens; every word is one."""
    draw = random.Random(0)
    words = 20
    for _ in range(5):
        got = worker.post(prompt(draw, words)).json()["usage"]["input_tokens"]
        words += tokens - got
    assert got == tokens, (got, tokens)
    return words


def load(worker, connections, seconds, make):
    """(decisions a second, sorted latencies in ms) of so many connections."""
    latencies = [[] for _ in range(connections)]
    end = time.monotonic() + seconds

    def run(i):
        draw = random.Random(i)
        client = http.client.HTTPConnection(worker.host, worker.port, timeout=120)
        while time.monotonic() < end:
            data = json.dumps(make(draw))
            began = time.monotonic()
            client.request("POST", "/v1/systemone", data)
            response = client.getresponse()
            response.read()
            assert response.status == 200, response.status
            latencies[i].append((time.monotonic() - began) * 1e3)
        client.close()

    began = time.monotonic()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    every = sorted(value for one in latencies for value in one)
    return len(every) / took, every


def at(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser()
    for flag in ("server", "lib", "model", "requests"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.requests, encoding="utf-8") as lines:
        collected = [json.loads(line)["request"] for line in lines]

    def from_data(draw):
        request = json.loads(json.dumps(draw.choice(collected)))
        name, question = draw.choice(list(request["questions"].items()))
        question["instructions"] = f"{question['instructions']} ({draw.random()})"
        return {**request, "questions": {name: question}}

    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                         text=True, check=False).stdout.strip()
    page = ["# Decisions a second on a GPU", "", "Written by `tests/gpu/worker_load.py`; do not edit.", "",
            f"{datetime.date.today().isoformat()}, {gpu}; the synthetic 4B model; {options.rounds} rounds of "
            f"{options.seconds:g} s for each line, batches on and off in turn, medians. One question a request, no prompt "
            "twice; the prompt's constant beginning (78 tokens, 64 of them kept as a state) is not computed again. The "
            f"best peer scores {PEER:.0f} prompts of 218 tokens a second, one after the other.", "",
            "| prompts | connections | decisions/s | p50, ms | p95 | p99 | without batches | ratio | to the peer |",
            "|---|---|---|---|---|---|---|---|---|"]
    with Worker(options.server, options.lib, options.model, "--log-level", "error") as on, Worker(
            options.server, options.lib, options.model, "--log-level", "error", "--batch", "off") as off:
        words = of_length(on, 218)
        for name, make in (("218 tokens", lambda draw: prompt(draw, words)), ("request data", from_data)):
            for connections in (1, 8, 16, 64):
                load(on, connections, 0.5, make)
                load(off, connections, 0.5, make)
                rates, plain, latencies = [], [], []
                for _ in range(options.rounds):
                    rate, values = load(on, connections, options.seconds, make)
                    rates.append(rate)
                    latencies.append(values)
                    plain.append(load(off, connections, options.seconds, make)[0])
                rate, without = statistics.median(rates), statistics.median(plain)
                shares = [statistics.median(at(values, share) for values in latencies) for share in (0.5, 0.95, 0.99)]
                peer = f"{rate / PEER:.2f}" if name == "218 tokens" else ""
                page.append(f"| {name} | {connections} | {rate:.0f} | " + " | ".join(f"{s:.2f}" for s in shares)
                            + f" | {without:.0f} | {rate / without:.2f} | {peer} |")
                print(page[-1], flush=True)
    page += ["", "```", "python3 tests/gpu/worker_load.py --server build/release/bin/cua-server --lib build/release/bin/libcua.so "
             "--model model-4b --requests tests/data/requests/systemone-samples.jsonl", "```", ""]
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write("\n".join(page))


if __name__ == "__main__":
    main()
