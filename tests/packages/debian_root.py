#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commit as a tarball, built without git in another folder; its libcua_cpu.so beside this build's, byte for byte;
its Debian packages installed in a clean Debian 12, run as their unit would run them, removed and purged.

usage: debian_root.py --source DIR --build DIR --model DIR --client FILE [--cuda ON] [--mirror URL]

It loads about 200 MB. Exit status 77, skipped: not root, or a program is missing.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PATIENCE = 3600  # seconds before a command is given up
NEEDED = ("git", "debootstrap", "dpkg-shlibdeps", "cpack", "unshare", "chroot", "ninja")
failures = 0


def check(name, condition, *detail):
    global failures
    print("ok    " if condition else "FAILED", name, *(() if condition else detail), flush=True)
    if not condition:
        failures += 1


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], timeout=PATIENCE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\n{done.stdout[-6000:]}\nended with status {done.returncode}")
    return done.stdout


def variables(folder):
    """Of a build's CMakeCache.txt."""
    return dict(re.findall(r"^(\w+):\w+=(.*)$", (folder / "CMakeCache.txt").read_text(), re.MULTILINE))


class Root:
    """A clean Debian 12."""

    def __init__(self, folder, mirror):
        self.folder = folder
        run("debootstrap", "--variant=minbase", "bookworm", folder, mirror)

    def command(self, *command):
        """With /proc, which ends with the command; nothing of this machine's environment but its proxies."""
        inside = ["chroot", str(self.folder), *map(str, command)]
        mount = f"mount -t proc proc {shlex.quote(str(self.folder / 'proc'))} && exec {shlex.join(inside)}"
        proxies = [f"{k}={v}" for k, v in os.environ.items() if k.lower().endswith("_proxy")]
        return ["unshare", "--mount", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", *proxies, "sh", "-ec", mount]

    def run(self, *command):
        return run(*self.command(*command))

    def fails(self, status, *command):
        """What it says."""
        done = subprocess.run(self.command(*command), timeout=PATIENCE, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        check(f"{command[0]} ends with {status}", done.returncode == status, done.returncode, done.stdout)
        return done.stdout

    def install(self, *packages):
        self.run("apt-get", "-qy", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", "install", *packages)

    def present(self, *folders):
        """Files whose name has cua in it."""
        return sorted(str(path) for folder in folders for path in (self.folder / folder).rglob("*cua*"))


def build_tarball(options, out):
    """The folder with the packages, and that of the build."""
    source = out / "elsewhere" / "and deeper"
    source.mkdir(parents=True)
    archive = out / "cua.tar.gz"
    with open(archive, "wb") as file:
        subprocess.run(["git", "-C", options.source, "archive", "--format=tar.gz", "--prefix=cua/", "HEAD"], stdout=file,
                       check=True)
    run("tar", "-xzf", archive, "-C", source)
    source /= "cua"
    cache = variables(Path(options.build))
    # No git: neither a repository nor the program.
    programs = out / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexit 97\n")
    (programs / "git").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    flags = [f"-D{name}={cache[name]}" for name in cache if name.endswith("COMPILER_LAUNCHER")]
    run("cmake", "--preset", "package", "-DCUA_WERROR=ON", f"-DCUA_WITH_CUDA={options.cuda}",
        "-DCMAKE_CUDA_ARCHITECTURES=90a-real", *flags, cwd=source, env=environment)
    run("cmake", "--build", "build/package", cwd=source, env=environment)
    run("cpack", cwd=source / "build/package", env=environment)
    return source / "build/package"


def same_library(options, package):
    library = "bin/libcua_cpu.so.4.0.0"
    changed = run("git", "-C", options.source, "status", "--porcelain", "--untracked-files=no", "--", "abi", "libcua", "cmake",
                  "CMakeLists.txt", "CMakePresets.json")
    if changed or variables(Path(options.build))["CMAKE_BUILD_TYPE"] != "Release":
        print("not compared: this build is not a release build of the commit")
        return
    run("cmake", "--build", options.build, "--target", "cua_cpu")
    ours, theirs = (Path(options.build) / library).read_bytes(), (package / library).read_bytes()
    check("two builds of libcua_cpu.so are the same bytes", ours == theirs, len(ours), len(theirs))
    check("no folder of the build in it", str(package).encode() not in theirs)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_as_unit(root, settings):
    """Starts what the unit starts, as nobody, with a socket for its notifications; asks; stops it."""
    unit = (root.folder / "usr/lib/systemd/system/cua-server.service").read_text()
    program = re.search(r"^ExecStart=(\S+)$", unit, re.MULTILINE)[1]
    environment_file = re.search(r"^EnvironmentFile=-(\S+)$", unit, re.MULTILINE)[1]
    check("the unit reads the settings", environment_file == "/etc/default/cua-server", environment_file)
    check("Type=notify", "\nType=notify\n" in unit and "\nDynamicUser=yes\n" in unit)
    lines = (root.folder / environment_file.lstrip("/")).read_text().splitlines()
    settings = [line for line in lines if line and not line.startswith("#")] + settings
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        name = f"cua-packages-{os.getpid()}"
        notified.bind("\0" + name)
        notified.settimeout(120)
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                root.command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
                             "--bounding-set=-all", "env", *settings, f"NOTIFY_SOCKET=@{name}", "WATCHDOG_USEC=1000000",
                             f"CUA_S1_PORT={port}", program), stdout=subprocess.DEVNULL, stderr=log)
            told = b""
            try:
                while b"READY=1" not in told:
                    told = notified.recv(4096)
                check("READY=1", True)
                while b"WATCHDOG=1" not in told:
                    told = notified.recv(4096)
                check("WATCHDOG=1", True)
                request = {"model": "cua-s1-4b-0.2", "state": "A dialog", "questions": {
                    "next": {"type": "choice", "instructions": "Keep.", "criteria": {"a": "Go", "b": "Stay"}}}}
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(f"http://127.0.0.1:{port}/v1/systemone", json.dumps(request).encode(), 60) as response:
                    answer = json.load(response)
                check("an answer", answer["answers"]["next"]["choice"] in ("a", "b"), answer)
                process.send_signal(signal.SIGTERM)
                while b"STOPPING=1" not in told:
                    told = notified.recv(4096)
                check("STOPPING=1 and the end", process.wait(60) == 0, process.returncode)
            except (OSError, subprocess.TimeoutExpired) as failure:
                log.seek(0)
                check("runs as the unit would run it", False, failure, log.read().decode()[-3000:])
                process.kill()
                process.wait()


def try_packages(root, debs, options):
    inside = root.folder / "packages"
    inside.mkdir()
    for deb in debs.glob("*.deb"):
        shutil.copy(deb, inside)
    names = {deb.name.split("_")[0]: f"/packages/{deb.name}" for deb in inside.iterdir()}
    expected = {"libcua4", "cua-server", "libcua-dev"} | ({"libcua-cuda"} if options.cuda == "ON" else set())
    check("the packages", set(names) == expected, sorted(names))
    shutil.copytree(options.model, root.folder / "srv/cua/model")
    before = root.present("etc", "usr", "var/lib/dpkg/info")
    check("a clean root", before == [], before)

    root.install(names["libcua4"], names["cua-server"])
    check("the loader knows the library", "libcua_cpu.so.4 " in root.run("ldconfig", "-p"))
    check("nothing is missing", "not found" not in root.run("sh", "-c", "ldd /usr/bin/cua-* /usr/lib/*/libcua*.so.4"))
    check("as packed", root.run("dpkg", "--verify", "libcua4", "cua-server") == "")
    said = root.run("cua-server", "--check", "--device", "cpu", "--model", "/srv/cua/model")
    check("cua-server --check", "ready to serve" in said, said)
    said = root.run("cua-export", "info", "/srv/cua/model")
    check("cua-export", "synthetic" in said, said)
    said = root.fails(3, "cua-server", "--check", "--model", "/srv/cua/model")
    check("no libcua.so: it says where it looked, and what to do", "/usr/lib/x86_64-linux-gnu" in said and "--device cpu" in said, said)
    run_as_unit(root, ["CUA_S1_MODEL=/srv/cua/model"])

    settings = root.folder / "etc/default/cua-server"
    settings.write_text(settings.read_text() + "CUA_S1_MODEL=/srv/cua/model\n")
    root.install("--reinstall", names["cua-server"])
    check("settings outlive an update", "\nCUA_S1_MODEL=" in settings.read_text())

    # A program's author.
    if options.cuda == "ON":
        root.install(names["libcua-cuda"])
        said = root.fails(3, "cua-server", "--check", "--model", "/srv/cua/model")
        check("without NVIDIA's runtime it says so", "install the CUDA runtime" in said, said)
        description = root.run("dpkg", "-s", "libcua-cuda")
        depends = re.search("^Depends: (.*)$", description, re.MULTILINE)[1]
        check("libcua-cuda tells of the CUDA runtime, and does not declare it",
              "libcublasLt" in description and not re.search("cuda|cublas|nvidia", depends), description)
    root.install(names["libcua-dev"], "gcc", "libc6-dev", "pkgconf")
    shutil.copy(options.client, root.folder / "client.c")
    root.run("sh", "-ec", "gcc -std=c99 client.c $(pkg-config --cflags --libs cua) -o client && "
             "./client $(pkg-config --variable=libdir cua)/libcua_cpu.so /srv/cua/model")
    check("a program of one's own", True)
    root.run("sh", "-ec", "cd /usr/share/doc/libcua-dev/examples/c && "
             "gcc -std=c99 -c score.c $(pkg-config --cflags cua) -o /score.o")
    check("the example", True)

    root.install("systemd")
    said = root.run("systemd-analyze", "verify", "cua-server.service")
    check("systemd-analyze verify", "cua-server" not in said, said)
    said = root.run("systemd-analyze", "security", "--offline=true", "--threshold=30", "cua-server.service")
    check("systemd-analyze security: " + said.strip().splitlines()[-1], True)

    root.run("apt-get", "-qy", "remove", *expected)
    check("removed, the settings kept", root.present("etc", "usr/bin", "usr/lib", "usr/include") == [str(settings)],
          root.present("etc", "usr/bin", "usr/lib", "usr/include"))
    root.run("dpkg", "--purge", *expected)
    check("purged", root.present("etc", "usr", "var/lib/dpkg/info") == [], root.present("etc", "usr", "var/lib/dpkg/info"))


def main():
    parser = argparse.ArgumentParser()
    for flag in ("source", "build", "model", "client"):
        parser.add_argument("--" + flag, required=True, type=os.path.abspath)
    parser.add_argument("--cuda", choices=("ON", "OFF"), default="OFF", help="libcua-cuda as well, for one architecture")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    options = parser.parse_args()
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if os.geteuid() != 0 or missing or not (Path(options.source) / ".git").exists():
        print("skipped: it needs root, a clone, and", ", ".join(missing or NEEDED))
        return 77
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        package = build_tarball(options, out)
        print(f"      built after {time.monotonic() - began:.0f} s")
        same_library(options, package)
        try_packages(Root(out / "root", options.mirror), package / "debian", options)
    print(f"{'failed' if failures else 'passed'} after {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
