#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CUDA calls that fail: the answer stays right, or the error is told; never a wrong answer.

usage: fault_test.py --lib FILE --shim FILE --model DIR      (each fault in a process of its own)
"""
import argparse
import json
import os
import subprocess
import sys

from library import Engine, LibraryError

OUT_OF_MEMORY, DEVICE_FAILED = 5, 7


def worker(lib, model):
    """Scores lengths 40, 40, 40, 3000, 40 in graph mode EXACT and tells what came of each."""
    told = {"create": None, "scores": []}
    try:
        engine = Engine(lib, model, graph_mode=1)
    except LibraryError as error:
        told["create"] = [error.code, str(error)]
        print(json.dumps(told))
        return
    for length in (40, 40, 40, 3000, 40):
        ids = [(7 * i + length) % 500 for i in range(length)]
        try:
            score = engine.score([ids])[0]
            told["scores"].append({"flags": score.flags, "bits": (bytes(score.logits) + bytes(score.probabilities)).hex()})
        except LibraryError as error:
            told["scores"].append({"code": error.code, "message": str(error)})
    stats = engine.stats()
    told["fallbacks"] = stats.fallbacks
    told["captures"] = stats.captures
    engine.close()
    print(json.dumps(told))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    parser.add_argument("--shim")
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    if options.shim is None:
        worker(options.lib, options.model)
        return 0
    failures = checks = 0

    def check(name, condition, detail):
        nonlocal failures, checks
        checks += 1
        if not condition:
            failures += 1
            print("FAILED", name, detail, file=sys.stderr)

    def run(fault):
        environment = {**os.environ, "LD_PRELOAD": os.path.abspath(options.shim), "CUA_FAULT": fault}
        done = subprocess.run([sys.executable, __file__, "--lib", options.lib, "--model", options.model],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        check(f"{fault}: the process lives", done.returncode == 0, done.stderr.decode()[-500:])
        return json.loads(done.stdout) if done.returncode == 0 else None

    good = run("none")
    right = [s["bits"] for s in good["scores"]]
    check("no fault: graphs work", good["captures"] > 0 and good["scores"][1]["flags"] == 1, good)

    def each_right_or_told(fault, told, codes):
        for i, score in enumerate(told["scores"]):
            if "code" in score:
                check(f"{fault}: call {i}: code", score["code"] in codes and score["message"], score)
            else:
                check(f"{fault}: call {i}: bits", score["bits"] == right[i], score["flags"])

    for fault in ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphInstantiate:1"):
        told = run(fault)
        if told:
            each_right_or_told(fault, told, set())
            check(f"{fault}: graphs off for good", told["fallbacks"] == 1, told["fallbacks"])
            check(f"{fault}: no replay after it", all(s["flags"] == 0 for s in told["scores"][-1:]), told["scores"][-1])
    told = run("cudaGraphLaunch")
    if told:
        each_right_or_told("cudaGraphLaunch", told, {DEVICE_FAILED})
        check("cudaGraphLaunch: sticky", [("code" in s) for s in told["scores"]] == [False, True, True, True, True], told)
    refused = 0
    for after in range(0, 40):
        told = run(f"cudaMalloc:{after}")
        if told is None:
            continue
        if told["create"]:
            refused += 1
            check(f"cudaMalloc:{after}: create", told["create"][0] == OUT_OF_MEMORY and "memory" in told["create"][1], told)
        else:
            each_right_or_told(f"cudaMalloc:{after}", told, {OUT_OF_MEMORY})
        if after > 12 and not told["create"] and all("code" not in s for s in told["scores"]):
            break
    check("cudaMalloc: some refused", refused > 3, refused)
    for after in range(0, 12, 2):
        told = run(f"cudaMallocHost:{after}")
        if told and told["create"]:
            check(f"cudaMallocHost:{after}: create", told["create"][0] == OUT_OF_MEMORY, told)
        elif told:
            each_right_or_told(f"cudaMallocHost:{after}", told, {OUT_OF_MEMORY})
    for after in (0, 100, 400, 700, 1000):
        told = run(f"cudaStreamSynchronize:{after}")
        if told and told["create"]:
            check(f"asynchronous error after {after}: create", told["create"][0] == DEVICE_FAILED, told)
        elif told:
            each_right_or_told(f"asynchronous error after {after}", told, {DEVICE_FAILED})
            codes = ["code" in s for s in told["scores"]]
            check(f"asynchronous error after {after}: sticky", codes == sorted(codes), codes)
    print(f"{checks - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
