# SPDX-License-Identifier: Apache-2.0
"""The clients of abi/examples: builds each, runs it, and compares what they print.

    examples.py --library FILE --model DIR --other FILE --tokenizer DIR [--compiler CC]

MODEL has a tokenizer; OTHER is tests/fake_library; the folder TOKENIZER holds fixture.json. A language
of which a program is missing is skipped, and said so; with CUA_ALL_CLIENTS=1 that is a failure.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "abi/examples"
PATIENCE = 300  # seconds before a build or a client is given up
GROWTH = 8192  # kB that 40 engines more may cost; 40 that are kept cost 20 MB
ERRORS = {"no model": 3, "too long": 6, "0 options": 1, "27 options": 1, "short buffer": 9, "no tokenizer": 8,
          "other version": 2}
failures = 0


def check(name, condition, *detail):
    global failures
    if not condition:
        failures += 1
        print("FAILED", name, *detail)


class Client:
    """A language: programs and files that it needs, commands that build it, and the command that it is."""

    def __init__(self, language, needs, build, command):
        self.language, self.needs, self.build, self.command = language, needs, build, command

    def missing(self):
        return next((need for need in self.needs if shutil.which(need) is None and not Path(need).is_file()), None)


def node_headers():
    """Beside Node.js, wherever it comes from."""
    node = shutil.which("node")
    program = subprocess.check_output([node, "-p", "process.execPath"], text=True).strip() if node else "/usr/bin/node"
    return Path(program).parents[1] / "include/node"


def clients(compiler, out):
    c = [compiler, "-O2", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", EXAMPLES.parent, "-I", EXAMPLES / "c"]
    headers = node_headers()
    addon = [*c, "-I", headers, "-shared", "-fPIC", EXAMPLES / "node/cua_addon.c", "-o", out / "cua_addon.node", "-ldl"]
    return [
        Client("c", [compiler], [[*c, EXAMPLES / "c/score.c", "-o", out / "score_c", "-ldl", "-lpthread"]], [out / "score_c"]),
        Client("python", [], [], [sys.executable, "-B", EXAMPLES / "python/score.py"]),
        Client("rust", ["rustc"], [["rustc", "--edition", "2021", "-O", "-D", "warnings", EXAMPLES / "rust/score.rs",
                                    "-o", out / "score_rust"]], [out / "score_rust"]),
        Client("go", ["go", compiler], [["env", "-C", EXAMPLES / "go", f"CC={compiler}", f"GOCACHE={out / 'go'}", "GOPROXY=off",
                                         "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local",
                                         "go", "build", "-o", out / "score_go", "."]], [out / "score_go"]),
        Client("node", ["node", compiler, headers / "node_api.h"],
               [["cp", EXAMPLES / "node/cua.js", EXAMPLES / "node/score.js", out], addon], ["node", out / "score.js"]),
    ]


def run(command):
    done = subprocess.run([str(part) for part in command], env=dict(os.environ, CUA_FAKE_ABI="5.0"), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\nended with status {done.returncode}\n{done.stdout}")
    return done.stdout


def model_without_tokenizer(model, folder):
    folder.mkdir()
    for file in Path(model).iterdir():
        if file.name != "tokenizer.json":
            (folder / file.name).symlink_to(file.resolve())
    return folder


def examine(lines, fixture):
    """What C prints is what a client has to print."""
    said = {}
    for line in lines:
        name, _, rest = line.partition(": ")
        said.setdefault(name, []).append(rest)
    check("tokens", said["prompt"] == [f"{len(fixture['ids'])} tokens, {fixture['ids'][0]} to {fixture['ids'][-1]}"], said)
    shares = {re.sub(r"flags \d+", "", answer) for answer in said["text"] + said["ids"] + said["batch"][:2] + said["again"]}
    check("one answer to one prompt", len(shares) == 1, shares)
    check("shares", abs(sum(map(float, re.findall(r"\d\.\d{6}", said["text"][0]))) - 1) < 1e-5, said["text"])
    check("batch", [re.match(r"[A-C], (\d+) tokens, flags (\d+)", answer).groups() for answer in said["batch"]]
          == [(str(len(fixture["ids"])), "4")] * 2 + [("4", "4")], said["batch"])
    check("graphs", said["graphs"][0] == "on" or said["graphs"][0].startswith("error 8: "), said["graphs"])
    check("statistics", "prompts 8, " in said["statistics"][0], said["statistics"])
    check("no library", "cannot open shared object file" in said["no library"][0], said["no library"])
    for name, code in ERRORS.items():
        check(name, said[name][0].startswith(f"error {code}: "), said[name])
    check("needed", said["short buffer"][1] == f"{len(fixture['ids'])} needed", said["short buffer"])
    check("other version", all(part in said["other version"][0] for part in ("5.0", "4.0", "same major version")),
          said["other version"])
    check("threads", said["threads"] == ["8, equal answers"], said["threads"])


def main():
    parser = argparse.ArgumentParser()
    for name in ("library", "model", "other", "tokenizer"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--compiler", default="cc")
    arguments = parser.parse_args()
    fixture = json.loads((Path(arguments.tokenizer) / "fixture.json").read_text())
    prompt = EXAMPLES / "prompt.txt"
    check("prompt.txt is the fixture", prompt.read_bytes() == fixture["text"].encode())

    reference, ran, skipped = None, [], []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        ids_model = model_without_tokenizer(arguments.model, out / "ids_model")
        for client in clients(arguments.compiler, out):
            if missing := client.missing():
                skipped.append(f"{client.language} (no {missing})")
                continue
            for command in client.build:
                run(command)
            lines = run(client.command + [arguments.library, arguments.model, prompt, ids_model, arguments.other]).splitlines()
            memory = re.fullmatch(r"memory: (\d+) kB after 10 engines, (\d+) kB after 50", lines.pop())
            print(f"{client.language}: {len(lines)} lines, {memory[0]}")
            check(f"{client.language}: memory", int(memory[2]) - int(memory[1]) < GROWTH, memory[0])
            if reference is None:
                print("\n".join(lines))
                reference = lines
                examine(lines, fixture)
            for line, wanted in zip(lines, reference):
                check(f"{client.language} and C", line == wanted, f"\n  {line}\n  {wanted}")
            check(f"{client.language}: lines", len(lines) == len(reference))
            ran.append(client.language)
    if skipped:
        check("all languages", os.environ.get("CUA_ALL_CLIENTS") != "1")
        print("skipped:", ", ".join(skipped))
    print("clients:", ", ".join(ran), "agree" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
