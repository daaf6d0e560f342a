#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What cua-server costs beside its forward pass: requests a second with a library that answers at
once, next to a minimal Beast server that answers a constant, in turn in the same run.

usage: server_overhead.py --server FILE --lib FILE --minimal FILE --requests FILE
                          [--seconds N] [--rounds N] [--soak REQUESTS] [--out FILE]

Needs wrk. Writes a Markdown page where --out says.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONNECTIONS = 32


class Server:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.port = int(self.process.stdout.readline().decode().rsplit(":", 1)[1])

    def resident_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def load(port, body, seconds):
    out = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", os.path.join(HERE, "fixture.lua"),
                          f"http://127.0.0.1:{port}"], env={**os.environ, "BODY": body}, check=True,
                         stdout=subprocess.PIPE).stdout.decode()
    result = json.loads(next(line for line in out.splitlines() if line.startswith("JSON "))[5:])
    if result["bad"]:
        sys.exit(f"{result['bad']} requests failed")
    return result


def processor():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        return next(line.split(":")[1].strip() for line in info if line.startswith("model name"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--minimal", required=True)
    parser.add_argument("--requests", required=True)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--soak", type=int, default=1_000_000)
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.requests, encoding="utf-8") as samples, tempfile.NamedTemporaryFile("w") as body:
        json.dump(json.loads(samples.readline())["request"], body)
        body.flush()
        minimal = Server(options.minimal)
        worker = Server(options.server, "--cuda-lib", options.lib, "--model", "none", "--port", "0")
        runs = {"minimal": [], "worker": []}
        for server in (minimal, worker):
            load(server.port, body.name, 1)
        for _ in range(options.rounds):
            runs["minimal"].append(load(minimal.port, body.name, options.seconds))
            runs["worker"].append(load(worker.port, body.name, options.seconds))
        done, memory = 0, [worker.resident_kb()]
        while done < options.soak:
            done += load(worker.port, body.name, options.seconds)["requests"]
            memory.append(worker.resident_kb())
        minimal.stop()
        worker.stop()

    rate = {name: [r["requests"] / r["seconds"] for r in results] for name, results in runs.items()}
    ratio = [w / m for w, m in zip(rate["worker"], rate["minimal"])]
    rows = [(label, f"{statistics.median(rate[name]):,.0f}", f"{statistics.median([r['p50_us'] for r in runs[name]]):,.0f}",
             f"{statistics.median([r['p99_us'] for r in runs[name]]):,.0f}")
            for name, label in (("minimal", "minimal Beast server, a constant"), ("worker", "cua-server, a library that answers at once"))]
    text = [
        "# The worker's own cost", "",
        "Written by `tests/benchmark/server_overhead.py`; do not edit.", "",
        f"{datetime.date.today().isoformat()}, {processor()}, {os.cpu_count()} cores shared by server and load; "
        f"wrk, {CONNECTIONS} keep-alive connections, the fixture request; medians of {options.rounds} runs of "
        f"{options.seconds} s in turn.", "",
        "| server | requests/s | p50, us | p99, us |", "|---|---|---|---|",
        *["| " + " | ".join(row) + " |" for row in rows], "",
        f"Ratio of the two, pair by pair: median {statistics.median(ratio):.2f}, "
        f"least {min(ratio):.2f}, largest {max(ratio):.2f}.", "",
        f"Resident memory of cua-server over {done:,} further requests, in kB: {memory[0]:,} before, "
        f"{memory[1]:,} after the first {options.seconds} s, {memory[-1]:,} at the end, {max(memory):,} at most.", "",
        "```", "cmake --build build/release --target minimal_server",
        "python3 tests/benchmark/server_overhead.py --server build/release/bin/cua-server \\",
        "  --lib build/release/tests/libcua_fake.so --minimal build/release/bin/minimal_server \\",
        "  --requests tests/data/requests/systemone-samples.jsonl --out docs/benchmarks/server_overhead.md", "```", ""]
    print("\n".join(text[6:14]))
    if options.out:
        os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
        with open(options.out, "w", encoding="utf-8") as page:
            page.write("\n".join(text))


if __name__ == "__main__":
    main()
