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

NO_DEVICE, OUT_OF_MEMORY, DEVICE_FAILED = 4, 5, 7


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


def leaks(lib, model):
    """Tells the free memory of the device around creations that fail."""
    import torch
    torch.zeros(1, device="cuda")
    told = {"free": [torch.cuda.mem_get_info()[0]], "codes": []}
    for _ in range(10):
        try:
            Engine(lib, model).close()
            told["codes"].append(0)
        except LibraryError as error:
            told["codes"].append(error.code)
        told["free"].append(torch.cuda.mem_get_info()[0])
    print(json.dumps(told))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    parser.add_argument("--shim")
    parser.add_argument("--model", required=True)
    parser.add_argument("--leaks", action="store_true")
    options = parser.parse_args()
    if options.shim is None:
        (leaks if options.leaks else worker)(options.lib, options.model)
        return 0
    failures = checks = 0

    def check(name, condition, *detail):
        nonlocal failures, checks
        checks += 1
        if not condition:
            failures += 1
            print("FAILED", name, *detail, file=sys.stderr)

    def run(fault, *flags):
        environment = {**os.environ, "LD_PRELOAD": os.path.abspath(options.shim), "CUA_FAULT": fault}
        done = subprocess.run([sys.executable, __file__, "--lib", options.lib, "--model", options.model,
                               *flags],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        check(f"{fault}: the process lives", done.returncode == 0, done.stderr.decode()[-500:])
        return json.loads(done.stdout) if done.returncode == 0 else None

    def first_to_load(function):
        """How many calls of a function loading takes: with one less it fails."""
        low, high = -1, 1
        while run(f"{function}:{high}")["create"]:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if run(f"{function}:{middle}")["create"] else (low, middle)
        return high

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
    for fault, code, words in (("cudaGetDeviceCount", NO_DEVICE, "older than CUDA"),
                               ("cudaGetDeviceProperties", NO_DEVICE, "compute capability 7.5")):
        told = run(fault)
        check(f"{fault}: code and sentence", told["create"] and told["create"][0] == code and words in told["create"][1],
              told)
    for function, code in (("cudaMalloc", OUT_OF_MEMORY), ("cudaMallocHost", OUT_OF_MEMORY),
                           ("cudaStreamSynchronize", DEVICE_FAILED)):
        loaded = first_to_load(function)
        for after in sorted({0, 1, 2, 3, loaded // 3, loaded // 2, loaded - 2, loaded - 1} - {-1, -2}):
            if after >= loaded:
                continue
            told = run(f"{function}:{after}")
            check(f"{function}:{after} of {loaded}: create", told["create"] and told["create"][0] == code, told)
        # How often a load waits varies a little: some of these end in it, others in a call.
        failed = 0
        for after in range(loaded, loaded + 60, 2 if code == DEVICE_FAILED else 1):
            told = run(f"{function}:{after}")
            if told["create"]:
                check(f"{function}:{after}: create", told["create"][0] == code, told["create"])
                continue
            each_right_or_told(f"{function}:{after}", told, {code})
            codes = ["code" in s for s in told["scores"]]
            if code == DEVICE_FAILED:
                check(f"{function}:{after}: sticky", codes == sorted(codes), codes)
            failed += any(codes)
            if not any(codes):
                break
        check(f"{function}: some calls failed", failed > 0, failed)
    for fault, code in (("cudaMalloc:40", OUT_OF_MEMORY), ("cudaMallocHost:1", OUT_OF_MEMORY),
                        ("cudaGetDeviceProperties", NO_DEVICE)):
        told = run(fault, "--leaks")
        check(f"{fault}: each refused", set(told["codes"]) == {code}, told["codes"])
        # The first may load kernels, which stay for the life of the process.
        check(f"{fault}: nothing leaks", abs(told["free"][1] - told["free"][-1]) < 1 << 20, told["free"])
        check(f"{fault}: nothing large stays", told["free"][0] - told["free"][-1] < 64 << 20, told["free"])
    print(f"{checks - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
