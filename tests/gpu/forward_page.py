#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the CUDA library's forward pass from what cua-bench measured.

usage: forward_page.py --off FILE --exact FILE --bucket FILE [--floor FILE]
                       --driver TEXT --out FILE

The floor is a section of its own, and is left out where its file is not there.
"""
import argparse
import datetime
import json
import os


def floor_section(floor, exact):
    """What the parts that no code around them can take away need, beside the pass of the same run."""
    medians = {one["tokens"]: one["median_s"] for one in exact["results"]}
    lines = ["## The floor", "",
             f"Of the same run, by `cua-bench floor`; milliseconds, median of {floor['runs']} replays on the device's clock, caches cold. "
             "Products: every matrix product of a pass, one after the other, with the weights of its layer and the plans that "
             "the engine times. Attention: our own kernel, in the layers that have it. Weights: those of the products read once at "
             f"{floor['read_bytes_per_s'] * 1e-9:.0f} GB/s, the most that reading gives on this card (copies read and write "
             f"{floor['copy_bytes_per_s'] * 1e-9:.0f} GB/s). Pass: the replay above.", "",
             "| tokens | weights | products | TFLOP/s | attention | TFLOP/s | products and attention | pass | pass over both |",
             "|" + "---|" * 9]
    for one in floor["passes"]:
        products, attention = one["products"], one["attention"]
        both, median = products["seconds"] + attention["seconds"], medians[one["tokens"]]
        rates = [part["flops"] / part["seconds"] * 1e-12 if part["seconds"] > 0 else 0 for part in (products, attention)]
        lines.append(f"| {one['tokens']} | {1e3 * one['weights_bytes'] / floor['read_bytes_per_s']:.2f} | {1e3 * products['seconds']:.2f} | "
                     f"{rates[0]:.0f} | {1e3 * attention['seconds']:.2f} | {rates[1]:.0f} | {1e3 * both:.2f} | {1e3 * median:.2f} | "
                     f"{median / both:.2f} |")
    return [*lines, ""]


def split_section(split):
    """Tables of the operations, timed one by one; what they add to is more than a pass takes."""
    lines = ["## Where the time goes", "",
             "Each operation between two events, which adds a few microseconds to a call. The rates count the least that an "
             "operation must do: the arithmetic of its definition, every input read once and every output written once. "
             f"This card at best: copies {split['copy_bytes_per_s'] * 1e-9:.0f} GB/s, products of bf16 "
             f"{split['product_flops_per_s'] * 1e-12:.0f} TFLOP/s.", ""]
    for one in split["passes"]:
        if one["tokens"] not in (64, 218, 2048, 16384):
            continue
        lines += [f"{one['tokens']} tokens, {one['launches']} launches a forward:", "",
                  "| operation | calls | ms | TFLOP/s | GB/s |", "|---|---|---|---|---|"]
        for operation in one["operations"]:
            seconds = operation["seconds"]
            lines.append(f"| {operation['name']} | {operation['calls']:.0f} | {seconds * 1e3:.3f} | "
                         f"{operation['flops'] / seconds * 1e-12:.1f} | {operation['bytes'] / seconds * 1e-9:.0f} |")
        lines.append("")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--off", required=True)
    parser.add_argument("--exact", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--floor")
    parser.add_argument("--driver", default="unknown")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    runs = {}
    for graph in ("off", "exact", "bucket"):
        with open(getattr(options, graph), encoding="utf-8") as file:
            runs[graph] = json.load(file)
    exact = runs["exact"]
    rows = []
    for eager, replay, bucket in zip(*(runs[graph]["results"] for graph in ("off", "exact", "bucket"))):
        assert eager["tokens"] == replay["tokens"] == bucket["tokens"] and replay["replayed"] == exact["runs"]
        assert bucket["replayed"] == (exact["runs"] if bucket["tokens"] <= 2048 else 0)
        cells = [f"{1e3 * r[key]:.2f}" for r, keys in ((replay, ("median_s", "min_s", "p95_s")), (bucket, ("median_s", "p95_s", "first_s")),
                                                       (eager, ("median_s", "min_s", "p95_s"))) for key in keys]
        rows.append(f"| {eager['tokens']} | " + " | ".join(cells) + f" | {1e3 * eager['first_s']:.2f} | "
                    f"{replay['device_bytes'] / 2**30:.2f} |")
    library, engine = exact["library"], exact["engine"]
    text = [
        "# The CUDA library's forward pass", "",
        "Written by `tests/gpu/forward_page.py`; do not edit.", "",
        f"{datetime.date.today().isoformat()}, {engine['device']}, driver {options.driver}, CUDA {library['cuda']}, built "
        f"against cuBLASLt {library['cublaslt']}; `{engine['model']}`, one prompt of random ids a call, ids in and "
        f"probabilities out, no prefix; {exact['runs']} runs after {exact['warm_ups']} warm-ups.", "",
        "Milliseconds. Replay: a captured graph of this length (`--graph exact`); bucket: a graph captured while loading, the "
        "prompt padded to its rows, to 2,048 tokens (`--graph bucket`); eager: launched kernel by kernel; first: the first "
        "pass of the length after loading.", "",
        "| tokens | replay, median | least | p95 | bucket, median | p95 | first | eager, median | least | p95 | first | GPU memory, GiB |",
        "|" + "---|" * 12, *rows, "",
        f"Loading 8.4 GB from the page cache, choosing GEMM plans included: "
        f"{runs['off']['load_s']:.2f} s, with bucket graphs {runs['bucket']['load_s']:.2f} s; "
        f"{runs['off']['own_bytes'] * 1e-9:.2f} GB of host memory beside the mapped weights.", "",
        "```", "sh tests/gpu/run.sh", "```", ""]
    if options.floor and os.path.exists(options.floor):
        with open(options.floor, encoding="utf-8") as file:
            text += floor_section(json.load(file), exact)
    text += split_section(exact["split"])
    with open(options.out, "w", encoding="utf-8") as page:
        page.write("\n".join(text))


if __name__ == "__main__":
    main()
