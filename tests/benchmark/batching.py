#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What batches give, and what a full queue takes from the probes.

1. Decisions a second at 32 connections with batches on and off in turn, of the request data: a stub
   library that takes 5 ms a call and 0.2 ms a prompt, and the CPU library with a small model.
2. Latency of /health, /livez, /readyz and /metrics while the CPU library scores prompts of 16,384
   tokens one after the other and the queue is full.

usage: batching.py --server FILE --fake FILE --cpu FILE --model DIR --requests FILE
                   [--seconds N] [--rounds N] [--out FILE]

Needs wrk. Writes a Markdown page where --out says.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
import benchmark_page  # noqa: E402
from worker import Worker, post  # noqa: E402

CONNECTIONS = 32
CALL_US, PROMPT_US = 5000, 200
LONG_PROMPT = 16384
QUEUE = 64
PROBES = ("/health", "/livez", "/readyz", "/metrics")


def wrk(script, target, connections, seconds, **environment):
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s", "-s",
                          os.path.join(HERE, script), target], env={**os.environ, **environment}, check=True,
                         stdout=subprocess.PIPE).stdout.decode()
    result = json.loads(next(line for line in out.splitlines() if line.startswith("JSON "))[5:])
    if result["bad"]:
        sys.exit(f"{target}: {result['bad']} requests failed")
    return result


def decisions(server, library, model, env, bodies, seconds, rounds):
    """{batch: [wrk's result of each round]} and {batch: mean prompts of a pass}; on and off in turn."""
    results, sizes = {"on": [], "off": []}, {}
    with Worker(server, library, model, "--batch", "on", "--log-level", "error", env=env) as on, \
            Worker(server, library, model, "--batch", "off", "--log-level", "error", env=env) as off:
        workers = {"on": on, "off": off}
        for worker in workers.values():
            wait_ready(worker)
            wrk("fixture.lua", f"http://127.0.0.1:{worker.port}", CONNECTIONS, 1, BODY=bodies)
        for _ in range(rounds):
            for batch, worker in workers.items():
                results[batch].append(wrk("fixture.lua", f"http://127.0.0.1:{worker.port}", CONNECTIONS, seconds,
                                          BODY=bodies))
        for batch, worker in workers.items():
            metrics = worker.metrics()
            sizes[batch] = metrics["cua_batch_prompts_sum"] / metrics["cua_batch_prompts_count"]
    return results, sizes


def wait_ready(worker):
    deadline = time.monotonic() + 60
    while worker.exchange(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").status != 200:
        if time.monotonic() > deadline:
            sys.exit(f"the worker is not ready:\n{worker.log_text()}")
        time.sleep(0.05)


def long_body(worker, request):
    """A request whose prompt has just LONG_PROMPT tokens, and that number as the worker counts it."""
    def asked(words):
        return json.dumps({**request, "state": "a " * words}).encode()

    def tokens(words):
        return worker.post(asked(words)).json()["usage"]["input_tokens"]

    words = 100 + LONG_PROMPT - tokens(100)  # a token for each word
    return asked(words), tokens(words)


def probes(server, library, model, request, seconds):
    """[(target, wrk's result)], the prompt's length, the median forward in seconds."""
    with Worker(server, library, model, "--batch", "off", "--max-queue-requests", str(QUEUE),
                "--log-level", "error") as worker:
        wait_ready(worker)
        body, tokens = long_body(worker, request)
        began = time.monotonic()
        worker.post(body)
        forward = time.monotonic() - began
        stop = threading.Event()
        threads = [threading.Thread(target=keep_asking, args=(worker, body, stop), daemon=True)
                   for _ in range(QUEUE + 8)]
        for thread in threads:
            thread.start()
        while worker.metrics()["cua_queue_questions"] < QUEUE - 1:
            time.sleep(0.05)
        results = [(target, wrk("probes.lua", f"http://127.0.0.1:{worker.port}{target}", 1, seconds))
                   for target in PROBES]
        full = worker.metrics()
        stop.set()
    if full["cua_queue_questions"] < QUEUE - 1:
        sys.exit("the queue did not stay full")
    return results, tokens, forward


def keep_asking(worker, body, stop):
    while not stop.is_set():
        try:
            with worker.connect() as connection:
                connection.send(post(body))
                response = connection.response()
            if response is None or response.status == 503:
                stop.wait(0.2)
        except (OSError, AssertionError):
            if not stop.is_set():
                stop.wait(0.2)


def main():
    parser = argparse.ArgumentParser()
    for name in ("server", "fake", "cpu", "model", "requests"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.requests, encoding="utf-8") as file:
        requests = [json.loads(line)["request"] for line in file]
    rows = []
    with tempfile.NamedTemporaryFile("w") as bodies:
        bodies.write("".join(json.dumps(request) + "\n" for request in requests))
        bodies.flush()
        for label, library, model, env in (
                (f"stub: {CALL_US / 1000:g} ms a call, {PROMPT_US / 1000:g} ms a prompt", options.fake, "none",
                 {"CUA_FAKE_CALL_US": str(CALL_US), "CUA_FAKE_PROMPT_US": str(PROMPT_US)}),
                ("CPU library, small model", options.cpu, options.model, {})):
            results, sizes = decisions(options.server, library, model, env, bodies.name, options.seconds, options.rounds)
            rate = {batch: [r["requests"] / r["seconds"] for r in runs] for batch, runs in results.items()}
            ratio = [on / off for on, off in zip(rate["on"], rate["off"])]
            middle = {batch: [statistics.median(r[key] for r in runs) / 1000 for key in ("p50_us", "p99_us")]
                      for batch, runs in results.items()}
            rows.append((label, f"{statistics.median(rate['on']):,.0f}", f"{middle['on'][0]:.1f}", f"{middle['on'][1]:.1f}",
                         f"{sizes['on']:.1f}", f"{statistics.median(rate['off']):,.0f}", f"{middle['off'][0]:.1f}",
                         f"{middle['off'][1]:.1f}", f"{statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})"))
    results, tokens, forward = probes(options.server, options.cpu, options.model, requests[0], options.seconds)
    text = [
        *benchmark_page.where(options.server), "## Decisions a second", "",
        f"{CONNECTIONS} keep-alive connections of wrk on the same cores; the {len(requests)} requests of the request data "
        f"in turn; {options.rounds} rounds of {options.seconds} s, batches on and off in turn; medians, and the ratio's "
        "least and largest.", "",
        *benchmark_page.table(["library", "decisions/s", "p50, ms", "p99", "prompts a pass", "`--batch off`", "p50, ms", "p99",
                               "ratio"], rows),
        "## The probes under a full queue", "",
        f"One connection, {options.seconds} s each, while the CPU library scores prompts of {tokens:,} tokens one after the "
        f"other ({forward:.1f} s each when alone, on all cores) and {QUEUE} more wait, the queue's limit.", "",
        *benchmark_page.table(["target", "answers", "p50, ms", "p99", "largest"],
                              [(target, f"{r['requests']:,}", f"{r['p50_us'] / 1000:.2f}", f"{r['p99_us'] / 1000:.2f}",
                                f"{r['max_us'] / 1000:.2f}") for target, r in results]),
        "```", "python3 tests/benchmark/batching.py --server build/release/bin/cua-server \\",
        "  --fake build/release/tests/libcua_fake.so --cpu build/release/bin/libcua_cpu.so \\",
        "  --model build/release/tests/tiny_model --requests tests/data/requests/systemone-samples.jsonl \\",
        "  --out docs/benchmarks/batching.md", "```", ""]
    print("\n".join(text))
    if options.out:
        benchmark_page.write(options.out, "Batches and a full queue", "batching.py", text)


if __name__ == "__main__":
    main()
