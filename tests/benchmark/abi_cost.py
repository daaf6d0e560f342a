#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the ABI itself takes of a call: cua_score_prompts less the forward pass inside.

usage: abi_cost.py --program FILE --library FILE --model DIR [--calls N] [--out PAGE]
"""
import argparse
import json
import subprocess

import benchmark_page


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--out")
    options = parser.parse_args()
    done = subprocess.run([options.program, options.library, options.model, str(options.calls)], check=True, capture_output=True)
    result = json.loads(done.stdout)
    rows = [(c["name"], f"{c['calls']:,}", f"{c['own_us']:.2f}", f"{c['least_us']:.2f}", f"{c['own_p95_us']:.2f}",
             f"{c['call_us']:,.0f}") for c in result["cases"]]
    lines = benchmark_page.where(options.program)
    lines += ["`cua_score_prompts` of the CPU library on the small random model of the tests, one thread calling. Own: the time of a "
              "call less that of the forward passes in it, which is the checks of the arguments, the lock, the packing, the softmax "
              f"and the copies; with text, its tokenisation too ({result['text_tokens']} tokens). Microseconds.", ""]
    lines += benchmark_page.table(("call", "calls", "own, median", "least", "p95", "whole call, median"), rows)
    lines += ["```", "cmake --build build/release --target abi_cost cua_timed_cpu",
              "python3 tests/benchmark/abi_cost.py --program build/release/bin/abi_cost \\",
              "  --library build/release/bin/libcua_timed_cpu.so --model build/release/tests/tiny_model \\",
              "  --out docs/benchmarks/abi_cost.md", "```", ""]
    print("\n".join(lines))
    if options.out:
        benchmark_page.write(options.out, "What a call of the library costs besides the forward pass", "abi_cost.py", lines)


if __name__ == "__main__":
    main()
