#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time from a request's body to token ids: the worker's mapping plus tokenisation.

usage: request_path.py --program FILE --tokenizer FILE --requests FILE [--cold N] [--warm N] [--out PAGE]
"""
import argparse
import json
import statistics
import subprocess
import tempfile

import benchmark_page


def measure(program, tokenizer, request, cold, warm):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as body:
        json.dump(request, body)
        body.flush()
        done = subprocess.run([program, tokenizer, body.name, str(cold), str(warm)], check=True, capture_output=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--requests", required=True)
    parser.add_argument("--cold", type=int, default=15)
    parser.add_argument("--warm", type=int, default=5000)
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.requests, encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    fixture = measure(options.program, options.tokenizer, samples[0]["request"], options.cold, options.warm)
    expected = sum(samples[0]["prompt_tokens"].values())
    assert fixture["tokens"] == expected, (fixture, expected)
    rows = []
    for name, label in (("cold", "cold: a tokenizer made anew"), ("warm", "warm")):
        times = fixture[name]
        rows.append((label, times["runs"], *[f"{times[key]:.1f}" for key in (
            "parse_us", "prompt_us", "tokenize_us", "median_us", "min_us", "p95_us")]))
    others = [measure(options.program, options.tokenizer, s["request"], 1, options.warm // 25) for s in samples[1:]]
    for sample, figures in zip(samples[1:], others):
        assert figures["tokens"] == sum(sample["prompt_tokens"].values()), sample["name"]
    rate = [f["warm"]["median_us"] / f["tokens"] for f in others]
    lines = benchmark_page.where(options.program)
    lines += [f"The fixture request: {fixture['bytes']} bytes of JSON, {fixture['tokens']} tokens. Microseconds, medians; "
              "one thread. Parse: JSON and the checks of every field; prompt: the text; tokenise: its ids.", ""]
    lines += benchmark_page.table(("cache", "runs", "parse", "prompt", "tokenise", "all", "least", "p95"), rows)
    lines += [f"The other {len(others)} requests of tests/data (up to {max(f['tokens'] for f in others):,} tokens), warm: "
              f"median {statistics.median(rate):.3f} us a token, "
              f"{max(f['warm']['median_us'] for f in others):,.0f} us for the longest.", "",
              "```", "cmake --build build/release --target request_path test_data",
              "python3 tests/benchmark/request_path.py --program build/release/bin/request_path \\",
              "  --tokenizer build/release/tests/data/tokenizer/tokenizer.json \\",
              "  --requests tests/data/requests/systemone-samples.jsonl --out docs/benchmarks/request_path.md", "```", ""]
    print("\n".join(lines))
    if options.out:
        benchmark_page.write(options.out, "From a request's body to token ids", "request_path.py", lines)


if __name__ == "__main__":
    main()
