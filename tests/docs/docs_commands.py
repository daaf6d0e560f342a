#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of a page of the documentation as it is written there.

usage: docs_commands.py --source DIR --build DIR PAGE...

Each page is tried in a folder of its own that looks like a clone after the build: commands run from
there. A fenced block `sh` is run with `sh -eu` and must succeed. A comment on the line before a fence
says what else is to be done with the block:

  <!-- not run: REASON -->  nothing
  <!-- needs: PROGRAM -->   run it where there is this program
  <!-- background -->       run it until it prints `listening on`, and stop it with SIGTERM at the page's end
  <!-- file: NAME -->       write it to that file
  <!-- output -->           it is what the block before printed; `...` stands for anything, numbers may
                            differ in the fourth decimal

A comment at the top of a page makes what its reader has by then:

  <!-- has: model -->       the folders tokenizer/ and model/ that README.md makes
  <!-- has: worker -->      these, and a worker on them at 127.0.0.1:8000
  <!-- has: demo -->        build/demo/model, which cmake/demo.sh leaves behind

The worker listens at a free port, which takes the place of 127.0.0.1:8000 in commands, files and outputs.
"""
import argparse
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE = 120  # seconds before a command is given up
SERVER = "build/release/bin/cua-server --device cpu --model model"
MAKE_MODEL = """cmake -E tar xf tests/data/tokenizer.tar.xz
build/release/bin/cua-export synthetic --shape tiny --seed 1 --tokenizer tokenizer --out {0}"""
NUMBER = re.compile(r"-?\d+\.\d+")


class Failure(Exception):
    pass


def blocks(text):
    """(line, language, directive, content) of each fenced block."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].startswith("```"):
            at += 1
            continue
        comment = re.fullmatch(r"<!-- (.*) -->", lines[at - 1]) if at > 0 else None
        end = lines.index("```", at + 1)
        yield at + 1, lines[at][3:].strip(), comment[1] if comment else "", "\n".join(lines[at + 1:end]) + "\n"
        at = end + 1


def same(wanted, got):
    """Whether an output is what the page says."""
    if "..." in wanted:
        pattern = ".*".join(re.escape(NUMBER.sub("0", part)) for part in wanted.strip().split("..."))
        return re.fullmatch(pattern, NUMBER.sub("0", got).strip(), re.DOTALL) is not None
    numbers = [float(n) for n in NUMBER.findall(wanted)], [float(n) for n in NUMBER.findall(got)]
    return (NUMBER.sub("0", wanted).strip() == NUMBER.sub("0", got).strip()
            and all(abs(a - b) <= 1e-4 for a, b in zip(*numbers)))


class Page:
    def __init__(self, source, build, page, folder):
        self.page, self.folder = page, Path(folder)
        self.text = (source / page).read_text()
        self.background = []
        for entry in source.iterdir():
            if entry.name not in ("build", ".git"):
                (self.folder / entry.name).symlink_to(entry)
        (self.folder / "build").mkdir()
        (self.folder / "build/release").symlink_to(build)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CUA_S1_")}
        self.environment.update(CUA_S1_PORT=self.address.split(":")[1], NO_PROXY="*", no_proxy="*", LC_ALL="C.UTF-8",
                                PYTHONDONTWRITEBYTECODE="1")  # the folders are the source's

    def own_address(self, text):
        return text.replace("127.0.0.1:8000", self.address)

    def command(self, text):
        return ["sh", "-euc", self.own_address(text)]

    def run(self, text):
        try:
            done = subprocess.run(self.command(text), cwd=self.folder, env=self.environment, timeout=PATIENCE,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            raise Failure(f"does not end in {PATIENCE} s") from None
        if done.returncode != 0:
            raise Failure(f"ended with status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout.replace(self.address, "127.0.0.1:8000")

    def start(self, text):
        log = tempfile.TemporaryFile()
        process = subprocess.Popen(self.command("exec " + text.strip()), cwd=self.folder, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        self.background.append(process)
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline().decode() if ready else ""
        if not line.startswith("listening on "):
            log.seek(0)
            raise Failure(f"does not listen: {line!r}\n{log.read().decode(errors='replace')}")
        return line.replace(self.address, "127.0.0.1:8000")

    def stop(self):
        for process in self.background:
            process.send_signal(signal.SIGTERM)
        for process in self.background:
            if process.wait(PATIENCE) != 0:
                raise Failure(f"what ran in the background ended with status {process.returncode}")

    def prepare(self):
        has = re.findall(r"^<!-- has: (\w+) -->$", self.text, re.MULTILINE)
        for what in has:
            if what not in ("model", "worker", "demo"):
                raise Failure(f"has: {what}?")
            self.run(MAKE_MODEL.format("build/demo/model" if what == "demo" else "model"))
            if what == "worker":
                self.start(SERVER)

    def try_all(self):
        """The number of blocks that were run."""
        count, printed, lacking = 0, None, False
        self.prepare()
        for line, language, directive, content in blocks(self.text):
            try:
                word, _, rest = directive.partition(": ")
                if word == "file":
                    (self.folder / rest).parent.mkdir(exist_ok=True)
                    (self.folder / rest).write_text(self.own_address(content))
                elif word == "output" and lacking:
                    continue
                elif word == "output":
                    if printed is None or not same(content, printed):
                        raise Failure(f"printed\n{printed}")
                elif word == "background":
                    printed = self.start(content)
                    count += 1
                elif language == "sh" and word != "not run":
                    lacking = word == "needs" and shutil.which(rest) is None
                    if lacking:
                        print(f"{self.page}:{line}: skipped, no {rest}")
                    else:
                        printed = self.run(content)
                        count += 1
                elif word == "not run" and not rest:
                    raise Failure("not run, and no reason given")
            except Failure as failure:
                raise Failure(f"{self.page}:{line}: {failure}\n--- the block:\n{content}") from None
        return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("pages", nargs="+")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.pages:
        with tempfile.TemporaryDirectory() as folder:
            page = Page(arguments.source.resolve(), arguments.build.resolve(), name, folder)
            try:
                print(f"{name}: {page.try_all()} blocks ran")
                page.stop()
            except Failure as failure:
                failed = True
                print(f"FAILED {failure}", file=sys.stderr)
            finally:
                for process in page.background:
                    process.kill()
                    process.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
