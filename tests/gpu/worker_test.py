#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The worker on the CUDA library: graphs from the environment, answers beside those of the CPU library, a lost device.

usage: worker_test.py --server FILE --lib FILE --cpu-lib FILE --shim FILE --model DIR --requests FILE
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from worker import PATIENCE, Worker, get

failures = []
checks = 0


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def answers(worker, requests, times=1):
    """For each request the answers of `times` posts."""
    return [[worker.post(request).json() for _ in range(times)] for request in requests]


def main():
    parser = argparse.ArgumentParser()
    for flag in ("server", "lib", "cpu-lib", "shim", "model", "requests"):
        parser.add_argument("--" + flag, required=True)
    options = parser.parse_args()
    with open(options.requests, encoding="utf-8") as lines:
        requests = [json.loads(line)["request"] for line in lines][:12]
    with Worker(options.server, options.cpu_lib, options.model, "--device", "cpu") as worker:
        cpu = [many[0] for many in answers(worker, requests)]
    with Worker(options.server, options.lib, options.model) as worker:
        eager = [many[0] for many in answers(worker, requests)]
        check("ready", worker.exchange(get("/health")).status == 200)
        check("SIGTERM", worker.stop()[0] == 0)
    with Worker(options.server, options.lib, options.model, env={"CUA_S1_GRAPH": "1"}) as worker:
        replayed = answers(worker, requests, times=3)
        check("SIGTERM with graphs", worker.stop()[0] == 0)
    decided = agree = 0
    worst = 0.0
    for request, slow, plain, fast in zip(requests, cpu, eager, replayed):
        check("graphs answer as eager passes do", fast == [plain] * 3, plain, fast)
        for name in request["questions"]:
            ours, theirs = plain["answers"][name]["probabilities"], slow["answers"][name]["probabilities"]
            check("the same options", list(ours) == list(theirs), ours, theirs)
            difference = max(abs(ours[key] - theirs[key]) for key in ours)
            worst = max(worst, difference)
            top = sorted(theirs.values(), reverse=True)
            if len(top) > 1 and top[0] - top[1] >= 0.05:
                decided += 1
                agree += plain["answers"][name]["choice"] == slow["answers"][name]["choice"]
    check("both libraries decide alike", decided > 0 and agree == decided, agree, decided)
    check("and their probabilities are near", worst < 0.1, worst)
    print(f"{decided} clear decisions of both libraries, {agree} alike; largest probability difference {worst:.4f}")

    # The device is lost after some passes: told once, then /health says so, and the worker ends as asked.
    lost = {"LD_PRELOAD": os.path.abspath(options.shim), "CUA_FAULT": "cudaStreamSynchronize:300"}
    for flags, ends in (([], False), (["--exit-on-device-failure"], True)):
        with Worker(options.server, options.lib, options.model, *flags, env=lost) as worker:
            statuses = [200]
            while statuses[-1] == 200 and len(statuses) < 2000:
                statuses.append(worker.post(requests[0]).status)
            check("a lost device is 500", statuses[-1] == 500 and len(statuses) > 1, statuses[-3:])
            if ends:
                check("the worker ends with 6", worker.process.wait(PATIENCE) == 6)
            else:
                health = worker.exchange(get("/health"))
                check("/health is 503 with the reason",
                      health.status == 503 and "cudaErrorIllegalAddress" in health.json()["reason"], health)
                check("later decisions fail at once", worker.post(requests[0]).status == 500)
                check("exit status", worker.stop()[0] == 6)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
