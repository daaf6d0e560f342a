# SPDX-License-Identifier: Apache-2.0
"""cua-bench: its figures hang together, and what it cannot do it says, with its exit status.

    cua_bench_test.py CUA_BENCH LIBRARY IDS_MODEL TEXT_MODEL
"""
import json
import os
import subprocess
import sys
import tempfile

bench, library, ids_model, text_model = sys.argv[1:]
failures = 0


def run(*arguments):
    done = subprocess.run([bench, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def check(what, condition, *seen):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", what, *seen)


def refuses(status, needle, *arguments):
    code, _, err = run(*arguments)
    check(f"{arguments} is refused", code == status and needle in err, code, err)


def check_times(what, figures, n):
    runs = sorted(figures["runs_s"])
    check(what, len(runs) == n and 0 < figures["min_s"] == runs[0], figures)
    check(what, runs[0] <= figures["median_s"] <= figures["p95_s"] <= runs[-1], figures)


with tempfile.TemporaryDirectory() as folder:
    out, text = os.path.join(folder, "out.json"), os.path.join(folder, "text")
    target = ("--device", "cpu", "--cuda-lib", library)
    code, table, err = run("forward", *target, "--model", ids_model, "--tokens", "64,5,130", "--batch", "3",
                           "--threads", "1", "--runs", "7", "--json", out)
    check("forward", code == 0 and not err and "peak resident" in table, code, table, err)
    with open(out, encoding="utf-8") as file:
        figures = json.load(file)
    check("backend", figures["library"]["backend"] == figures["engine"]["backend"] == "cpu", figures)
    check("threads", "1 thread" in figures["engine"]["device"], figures["engine"])
    check("lengths", [r["tokens"] for r in figures["results"]] == [64, 5, 130], figures)
    for result in figures["results"]:
        check_times("forward", result, 7)
        check("one pass a call", result["forwards_per_call"] == 1, result)
        check("rate", abs(result["tokens_per_s"] * result["median_s"] / (3 * result["tokens"]) - 1) < 1e-6, result)
    code, table, err = run("forward", *target, "--model", ids_model, "--tokens", "9,70", "--runs", "2", "--split",
                           "--json", out)
    check("split", code == 0 and not err and "TFLOP/s" in table, code, table, err)
    with open(out, encoding="utf-8") as file:
        passes = json.load(file)["split"]["passes"]
    check("split by length", [p["tokens"] for p in passes] == [9, 70], passes)
    for one in passes:
        names = [o["name"].split()[0] for o in one["operations"]]
        check("every operation", set(names) == {
            "embed", "rms_norm", "linear", "linear_add", "gather_last", "gdn_prepare", "gdn_scan", "gated_norm",
            "attention_prepare", "attention", "silu_mul", "readout"}, names)
        check("times, longest first", [o["seconds"] for o in one["operations"]] == sorted(
            (o["seconds"] for o in one["operations"]), reverse=True) and one["operations"][-1]["seconds"] > 0, one)

    # The process holds the library and the model at least.
    check("peak", figures["peak_resident_bytes"] > 2 << 20, figures["peak_resident_bytes"])

    with open(text, "w", encoding="utf-8") as file:
        file.write("A word, \u20ac 12, and another.\n" * 100)
    code, table, err = run("tokenize", *target, "--model", text_model, "--file", text, "--runs", "5",
                           "--cold-runs", "2", "--json", out)
    check("tokenize", code == 0 and not err and "MB/s" in table, code, table, err)
    with open(out, encoding="utf-8") as file:
        figures = json.load(file)
    check("bytes", figures["bytes"] == os.path.getsize(text) > figures["tokens"] > 500, figures)
    check_times("warm", figures["warm"], 5)
    check_times("cold", figures["cold"], 2)

    refuses(2, "usage")
    refuses(2, "unknown command", "backward")
    refuses(2, "--model", "forward")
    refuses(2, "--model", "tokenize", "--file", text)
    refuses(2, "--file", "tokenize", "--model", text_model)
    refuses(2, "positional", "forward", "--model", ids_model, "surprise")
    for tokens in ("", "0", "-1", "1,", ",1", "1,,2", "x", "1 2", "99999999999"):
        refuses(2, "--tokens", "forward", "--model", ids_model, *target, "--tokens=" + tokens)
    refuses(2, "--graph", "forward", "--model", ids_model, "--graph", "on")
    refuses(2, "--device", "forward", "--model", ids_model, "--device", "gpu")
    refuses(2, "--runs", "forward", "--model", ids_model, "--runs", "0")
    refuses(2, "--batch", "forward", "--model", ids_model, "--batch", "0")
    for tokens in ("", "0", "64,"):
        refuses(2, "--tokens", "floor", "--model", ids_model, "--tokens=" + tokens)
    refuses(2, "--runs", "floor", "--model", ids_model, "--runs", "0")
    refuses(2, "needs a GPU", "floor", "--model", ids_model, "--device", "cpu")
    refuses(2, "--cuda-lib", "floor", "--model", ids_model, "--cuda-lib", library)
    # The library's own words.
    refuses(1, "graph_mode 1", "forward", *target, "--model", ids_model, "--graph", "exact")
    refuses(1, "/no/such/folder", "forward", *target, "--model", "/no/such/folder")
    refuses(1, "tokenizer.json", "tokenize", *target, "--model", ids_model, "--file", text)
    refuses(1, "/no/such/text", "tokenize", *target, "--model", text_model, "--file", "/no/such/text")
    with open(text, "wb") as file:
        file.write(b"abc\xff")
    refuses(1, "not UTF-8 at byte 3", "tokenize", *target, "--model", text_model, "--file", text)
    refuses(1, "/no/such.so", "forward", "--model", ids_model, "--cuda-lib", "/no/such.so")
    refuses(1, text, "forward", "--model", ids_model, "--cuda-lib", text)
    refuses(1, "/no/such/out", "forward", *target, "--model", ids_model, "--tokens", "1", "--runs", "1",
            "--json", "/no/such/out")

    helped = [run("--help"), run("floor", "--help"), run("forward", "--help"), run("tokenize", "--help")]
    check("help", all(code == 0 and out and not err for code, out, err in helped), helped)

print("failed" if failures else "passed")
sys.exit(1 if failures else 0)
