#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel by kernel: where the time of one forward pass goes, and how much of it is between kernels.

usage: kernel_times.py --lib FILE --model DIR [--tokens 64,218,2048] [--graph]

Needs torch, whose profiler records every kernel of the process (CUPTI).
"""
import argparse
import collections
import random
import re

import torch
from torch.profiler import ProfilerActivity, profile

from library import Engine


def short(name):
    """A kernel's name without its namespace, template and arguments."""
    ours = re.search(r"cuda::(?:\(anonymous namespace\)::|_GLOBAL__N__\w+::)?(\w+)", name)
    return ours.group(1) if ours else re.sub(r"[<(].*", "", name)[:60]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", default="64,218,2048")
    parser.add_argument("--graph", action="store_true", help="replays instead of eager passes")
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    draw = random.Random(1)
    with Engine(options.lib, options.model, graph_mode=int(options.graph)) as engine:
        vocabulary = engine.describe()["vocabulary"]
        for tokens in map(int, options.tokens.split(",")):
            ids = [[draw.randrange(vocabulary) for _ in range(tokens)] for _ in range(6)]
            for prompt in ids[:3]:
                engine.score([prompt])
            passes = ids[3:]
            with profile(activities=[ProfilerActivity.CUDA]) as recorded:
                for prompt in passes:
                    engine.score([prompt])
            kernels = [e for e in recorded.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            kernels.sort(key=lambda e: e.time_range.start)
            busy = collections.Counter()
            count = collections.Counter()
            reach, between = None, 0
            for kernel in kernels:
                name = short(kernel.name)
                busy[name] += kernel.time_range.end - kernel.time_range.start
                count[name] += 1
                if reach is not None and 0 < kernel.time_range.start - reach < 100:  # µs; longer: between passes
                    between += kernel.time_range.start - reach
                reach = max(reach or 0, kernel.time_range.end)
            n = len(passes)
            print(f"{tokens} tokens: {len(kernels) / n:.0f} launches and copies a pass, kernels "
                  f"{sum(busy.values()) / n / 1e3:.3f} ms, between them {between / n / 1e3:.3f} ms")
            for name, time in busy.most_common():
                print(f"  {name:62} {count[name] / n:6.1f} x {time / count[name]:9.2f} us = {time / n / 1e3:8.3f} ms")


if __name__ == "__main__":
    main()
