#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the CUDA library's forward pass from what cua-bench measured.

usage: forward_page.py --off FILE --exact FILE --driver TEXT --out FILE
"""
import argparse
import datetime
import json


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--off", required=True)
    parser.add_argument("--exact", required=True)
    parser.add_argument("--driver", default="unknown")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    runs = {}
    for graph in ("off", "exact"):
        with open(getattr(options, graph), encoding="utf-8") as file:
            runs[graph] = json.load(file)
    exact = runs["exact"]
    rows = []
    for eager, replay in zip(runs["off"]["results"], exact["results"]):
        assert eager["tokens"] == replay["tokens"] and replay["replayed"] == exact["runs"]
        cells = [f"{1e3 * r[key]:.2f}" for r in (replay, eager) for key in ("median_s", "min_s", "p95_s")]
        rows.append(f"| {eager['tokens']} | " + " | ".join(cells) + f" | {1e3 * eager['first_s']:.2f} | "
                    f"{replay['device_bytes'] / 2**30:.2f} |")
    library, engine = exact["library"], exact["engine"]
    text = [
        "# The CUDA library's forward pass", "",
        "Written by `tests/gpu/forward_page.py`; do not edit.", "",
        f"{datetime.date.today().isoformat()}, {engine['device']}, driver {options.driver}, CUDA {library['cuda']}, built "
        f"against cuBLASLt {library['cublaslt']}; `{engine['model']}`, one prompt of random ids a call, ids in and "
        f"probabilities out, no prefix; {exact['runs']} runs after {exact['warm_ups']} warm-ups.", "",
        "Milliseconds. Replay: a captured graph of this length; eager: launched kernel by kernel; first: the first eager "
        "pass of the length after loading.", "",
        "| tokens | replay, median | least | p95 | eager, median | least | p95 | first | GPU memory, GiB |",
        "|---|---|---|---|---|---|---|---|---|", *rows, "",
        f"Loading 8.4 GB from the page cache, choosing GEMM plans included: {runs['off']['load_s']:.2f} s.", "",
        "```", "sh tests/gpu/run.sh", "```", ""]
    with open(options.out, "w", encoding="utf-8") as page:
        page.write("\n".join(text))


if __name__ == "__main__":
    main()
