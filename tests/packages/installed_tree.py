#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` into a folder: what lies where, and whether it works there, and after a move.

usage: installed_tree.py --source DIR --build DIR --model DIR --client FILE --compiler CC --readelf FILE

CLIENT is a C program that takes LIBRARY MODEL.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE = 300  # seconds before a command is given up
failures = 0


def check(name, condition, *detail):
    global failures
    if not condition:
        failures += 1
        print("FAILED", name, *detail)


def run(*command, status=0, environment=None):
    done = subprocess.run([str(part) for part in command], timeout=PATIENCE, capture_output=True, text=True,
                          env={**os.environ, **(environment or {})})
    check(" ".join(map(str, command)), done.returncode == status, done.returncode, done.stdout, done.stderr)
    return done.stdout


def variables(cache):
    """Of a CMakeCache.txt."""
    return dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.MULTILINE))


class Installed:
    def __init__(self, options, cache):
        self.options = options
        self.prefix, self.libdir = cache["CMAKE_INSTALL_PREFIX"], cache["CMAKE_INSTALL_LIBDIR"]
        self.cuda = (Path(options.build) / "bin/libcua.so").exists()

    def files(self, stage):
        """All that must be there, and nothing else but documentation."""
        names = {"bin/cua-server", "bin/cua-export", "bin/cua-bench", "include/cua.h", "etc/default/cua-server",
                 "lib/systemd/system/cua-server.service", f"{self.libdir}/pkgconfig/cua.pc",
                 *(f"{self.libdir}/cmake/cua/cua{part}.cmake" for part in ("Config", "ConfigVersion", "Targets")),
                 *(f"{self.libdir}/libcua_cpu.so{end}" for end in ("", ".4", ".4.0.0")),
                 *(f"{self.libdir}/libcua.so{end}" for end in ("", ".4", ".4.0.0") if self.cuda)}
        present = {str(path.relative_to(stage)) for path in stage.rglob("*") if not path.is_dir()}
        documents = {name for name in present if name.startswith("share/doc/")}
        check("the files", present - documents == names, sorted((present - documents) ^ names))
        packages = ["libcua4", "cua-server", "libcua-dev"] + ["libcua-cuda"] * self.cuda
        for package in packages:
            check(f"{package}'s licence", f"share/doc/{package}/copyright" in documents)
        check("the examples", "share/doc/libcua-dev/examples/python/cua.py" in documents)
        for name in names:
            head = self.elf(stage / name)
            check(f"{name} has no search path", not re.search("RPATH|RUNPATH", head), head)

    def elf(self, path):
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return ""
        return run(self.options.readelf, "-d", path)

    def works(self, stage, out):
        model, client = self.options.model, self.options.client
        environment = {"PKG_CONFIG_PATH": str(stage / self.libdir / "pkgconfig"), "LD_LIBRARY_PATH": ""}
        said = run(stage / "bin/cua-server", "--check", "--device", "cpu", "--model", model, environment=environment)
        check("the worker", "ready to serve" in said, said)
        # The tools find the library as the worker does.
        run(stage / "bin/cua-bench", "forward", "--device", "cpu", "--model", model, "--tokens", "5", "--runs", "1",
            environment=environment)
        with open(stage / "lib/systemd/system/cua-server.service", encoding="utf-8") as unit:
            check("the unit's program", f"ExecStart={self.prefix}/bin/cua-server\n" in unit.read())

        configure = ["cmake", "-S", Path(__file__).parent / "consumer", f"-DCMAKE_C_COMPILER={self.options.compiler}",
                     f"-DCMAKE_PREFIX_PATH={stage}", f"-DCLIENT={client}"]
        run(*configure, "-B", out, "-DVERSION=4.0")
        run("cmake", "--build", out)
        folder = Path((out / "library_folder").read_text())
        check("cua_LIBRARY_DIR", folder.resolve() == (stage / self.libdir).resolve(), folder)
        run(out / "consumer", folder / "libcua_cpu.so", model, environment=environment)
        for version in ("3.0", "4.1", "5.0"):
            run(*configure, "-B", out / version, f"-DVERSION={version}", status=1)

        if shutil.which("pkg-config") is None:
            print("no pkg-config: its file was not tried")
            return
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", "cua", environment=environment))
        run(self.options.compiler, "-std=c99", client, *flags, "-o", out / "by_pkg_config")
        folder = run("pkg-config", "--variable=libdir", "cua", environment=environment).strip()
        run(out / "by_pkg_config", f"{folder}/libcua_cpu.so", model, environment=environment)
        check("its version", run("pkg-config", "--modversion", "cua", environment=environment) == "4.0.0\n")


def main():
    parser = argparse.ArgumentParser()
    for flag in ("source", "build", "model", "client", "compiler", "readelf"):
        parser.add_argument("--" + flag, required=True)
    options = parser.parse_args()
    installed = Installed(options, variables(Path(options.build) / "CMakeCache.txt"))
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "a folder"
        run("cmake", "--install", options.build, "--prefix", stage)
        installed.files(stage)
        check("the header", (stage / "include/cua.h").read_bytes() == (Path(options.source) / "abi/cua.h").read_bytes())
        moved = Path(folder) / "moved"
        stage.rename(moved)
        installed.works(moved, Path(folder) / "consumer")
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
