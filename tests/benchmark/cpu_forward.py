#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU library's forward pass next to PyTorch's matrix products of the same model, in turn in the
same run: median time, and the peak resident set of a fresh process.

usage: cpu_forward.py --bench cua-bench --model DIR [--tokens 153] [--threads N] [--rounds N] [--out PAGE]

PyTorch is optional: without it only the library is measured, and no page is written.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import benchmark_page
from disturbance import Disturbance, wait_until_quiet

try:
    import torch
except ImportError:
    torch = None

DISTURBED = 0.04  # share of the machine that others may take during a round
DISTINCT = 3  # layers of a kind that PyTorch gets weights for: 1.3 GB in fp32, beyond any cache


class Shapes:
    """The linears of a model, as (rows, inputs, outputs)."""

    def __init__(self, folder, tokens):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        c = config.get("text_config", config)
        layers, interval = c["num_hidden_layers"], c.get("full_attention_interval", 4)
        kinds = c.get("layer_types") or ["full_attention" if i % interval == interval - 1 else "linear_attention"
                                         for i in range(layers)]
        hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
        q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
        keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
        values = c["linear_num_value_heads"] * c["linear_value_head_dim"]

        def mlp(rows):
            return [(rows, hidden, inner), (rows, hidden, inner), (rows, inner, hidden)]

        def attention(rows):  # q_proj has the gate's rows too; k and v are needed of every token
            return [(rows, hidden, 2 * q), (tokens, hidden, kv), (tokens, hidden, kv), (rows, q, hidden), *mlp(rows)]

        gdn = [(tokens, hidden, 2 * keys + values), (tokens, hidden, values),
               (tokens, hidden, c["linear_num_value_heads"]), (tokens, hidden, c["linear_num_value_heads"]),
               (tokens, values, hidden), *mlp(tokens)]
        assert kinds[-1] == "full_attention", kinds
        n_gdn = kinds.count("linear_attention")
        # name -> the linears of one layer, how many such layers
        self.layers = {"gdn": (gdn, n_gdn), "attention": (attention(tokens), layers - n_gdn - 1),
                       "last": (attention(1), 1), "last, every row": (attention(tokens), 1)}

    def flop(self, names):
        return sum(2 * rows * k * n * count for name in names for layer, count in [self.layers[name]]
                   for rows, k, n in layer)


SAME = ("gdn", "attention", "last")  # what the library computes: of the last layer, one row
EVERY = ("gdn", "attention", "last, every row")


class Products:
    """PyTorch's time for the linears; weights of DISTINCT layers of each kind, used in turn."""

    def __init__(self, shapes, dtype):
        generator = torch.Generator().manual_seed(1)
        self.layers = {}
        for name, (linears, count) in shapes.layers.items():
            copies = [[(torch.randn(rows, k, generator=generator).to(dtype),
                        (torch.randn(n, k, generator=generator) / k**0.5).to(dtype)) for rows, k, n in linears]
                      for _ in range(min(DISTINCT, count))]
            self.layers[name] = (copies, count)

    @torch.inference_mode() if torch else lambda function: function
    def seconds(self):
        """Name -> of all its layers."""
        times = {}
        for name, (copies, count) in self.layers.items():
            for copy in copies:
                start = time.perf_counter()
                for x, w in copy:
                    torch.nn.functional.linear(x, w)
                times.setdefault(name, []).append(time.perf_counter() - start)
            times[name] = statistics.mean(times[name]) * count if copies else 0.0
        return times


def library(options):
    """One fresh process."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        command = [options.bench, "forward", "--device", "cpu", "--model", options.model, "--tokens",
                   str(options.tokens), "--threads", str(options.threads), "--warm-ups", "1", "--runs",
                   str(options.runs), "--json", out.name]
        if options.cuda_lib:
            command += ["--cuda-lib", options.cuda_lib]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.load(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--cuda-lib", help="else the CPU library beside cua-bench")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=153)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=2, help="timed passes of each process")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine before a round")
    parser.add_argument("--out")
    options = parser.parse_args()
    shapes = Shapes(options.model, options.tokens)
    kinds = {}
    if torch is None:
        print("SKIPPED: PyTorch is not installed; the library alone is measured", file=sys.stderr)
    else:
        torch.set_num_threads(options.threads)
        kinds = {"fp32": Products(shapes, torch.float32), "bf16": Products(shapes, torch.bfloat16)}
        for products in kinds.values():
            products.seconds()  # warm-up
    runs, times, thrown = [], {name: [] for name in kinds}, 0
    while len(runs) < options.rounds:
        wait_until_quiet(DISTURBED, options.patience)
        disturbance = Disturbance()
        run, products = library(options), {name: product.seconds() for name, product in kinds.items()}
        share = disturbance.share()
        print(f"library {run['results'][0]['median_s']:.3f} s" + "".join(
            f", PyTorch {name} {sum(parts[part] for part in SAME):.3f} s" for name, parts in products.items())
            + f", others {share:.1%}", file=sys.stderr)
        if share > DISTURBED:
            thrown += 1
            if thrown > 3 * options.rounds:
                sys.exit("other processes keep the machine busy: no figures")
            continue
        runs.append(run)
        for name, parts in products.items():
            times[name].append(parts)

    ours = [run["results"][0]["median_s"] for run in runs]
    median = statistics.median(ours)
    rows = [("the library: the whole pass", f"{median:.3f}", f"{min(ours):.3f}", f"{max(ours):.3f}", "",
             f"{shapes.flop(SAME) / median * 1e-9:.0f}")]
    for name in kinds:
        for label, parts in (("the same linears", SAME), ("every linear at every row", EVERY)):
            sums = [sum(t[part] for part in parts) for t in times[name]]
            ratio = statistics.median(a / b for a, b in zip(ours, sums))
            rows.append((f"PyTorch {name}: {label}", f"{statistics.median(sums):.3f}", f"{min(sums):.3f}",
                         f"{max(sums):.3f}", f"{ratio:.2f}", f"{shapes.flop(parts) / statistics.median(sums) * 1e-9:.0f}"))
    peak = max(run["peak_resident_bytes"] for run in runs)
    weights = sum(os.path.getsize(os.path.join(options.model, name)) for name in os.listdir(options.model)
                  if name.endswith(".safetensors"))
    engine = runs[0]["engine"]
    lines = benchmark_page.where(options.bench, library=f"{runs[0]['library']['version']}: {engine['device']}",
                                 **({"PyTorch": f"{torch.__version__}, {torch.get_num_threads()} threads"} if torch else {}))
    lines += [f"One prompt of {options.tokens} tokens, random ids, on `{engine['model']}` ({weights * 1e-9:.2f} GB of weights, "
              f"mapped; {shapes.flop(SAME) * 1e-9:,.0f} GFLOP of linears). {options.rounds} rounds, in each a fresh process of "
              f"`cua-bench forward` (1 warm-up, median of {options.runs}) and then PyTorch. The library's time is that of the whole "
              "pass, attention and Gated DeltaNet included; PyTorch's is that of its linears alone: weights of "
              f"{DISTINCT} layers of each kind used in turn (more than the caches hold), times the number of such layers. The "
              "last layer needs most of its linears for one row only; `every linear at every row` does not use that. Rounds during "
              f"which other processes took more than {DISTURBED:.0%} of the machine are not counted ({thrown} here).", ""]
    lines += benchmark_page.table(("seconds", "median", "least", "largest", "library / this", "GFLOP/s of linears"), rows)
    first = statistics.median(run["results"][0]["first_s"] for run in runs)
    lines += [f"Peak resident set of the library's process: **{peak * 1e-9:.2f} GB** (the largest of {len(runs)}). First pass, which "
              f"touches the mapped weights: {first:.3f} s; loading: {statistics.median(run['load_s'] for run in runs):.3f} s.", "",
              "```", "cmake --build build/release",
              "build/release/bin/cua-export synthetic --shape 4b --seed 1 --out MODEL",
              "python3 tests/benchmark/cpu_forward.py --bench build/release/bin/cua-bench --model MODEL \\",
              f"  --tokens {options.tokens} --threads {options.threads} --rounds {options.rounds} --out docs/benchmarks/cpu_forward.md",
              "```", ""]
    print("\n".join(lines))
    if options.out and torch:
        benchmark_page.write(options.out, "The CPU library's forward pass", "cpu_forward.py", lines)


if __name__ == "__main__":
    main()
