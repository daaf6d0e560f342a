#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a virtual environment with the packages of clients/requirements.txt, and runs a program in it.

usage: client_venv.py FOLDER [PROGRAM ARGUMENT...]

FOLDER is made where it is not there or has other packages. Where Python cannot make one, or no package index
answers: exit status 77. A package that an index which answers does not have is a failure.
"""
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "clients" / "requirements.txt"
PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input", "--timeout", "20", "--retries", "2"]
SKIP = 77


class Unavailable(Exception):
    pass


def make(folder):
    """Compiling what is never imported would take longer than the installation; what is imported is compiled then."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    done = subprocess.run([python, *PIP, "install", "--quiet", "--no-compile", "--only-binary=:all:", "-r", REQUIREMENTS],
                          check=False)
    if done.returncode != 0:
        # Whether it is the index or the package: any index has pip, and a folder of wheels may have it too.
        probe = [python, *PIP, "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", folder / "probe", "pip"]
        environment = {k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"}
        if subprocess.run(probe, env=environment, check=False).returncode != 0:
            raise Unavailable("no package index answers")
        sys.exit("a package cannot be installed")


def made(folder):
    """The folder's interpreter, after making the folder where that is needed."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise Unavailable(f"this Python has no module {module} (Debian: python3-venv)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    stamp, wanted = folder / "requirements.txt", REQUIREMENTS.read_text() + sys.version
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            make(folder)
            stamp.write_text(wanted)
    return str(folder / "bin" / "python")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        python = made(Path(sys.argv[1]).absolute())
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIP
    if len(sys.argv) > 2:
        sys.stdout.flush()
        os.execv(python, [python, *sys.argv[2:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
