# SPDX-License-Identifier: Apache-2.0
"""Clients and libraries of 4.0, of a coming 4.1 and of another major, all against each other.

    versions.py CLIENT_4_0 CLIENT_4_1 LIBRARY LATER_LIBRARY FAKE_LIBRARY MODEL
"""
import os
import subprocess
import sys

client_4_0, client_4_1, library, later, fake, model = sys.argv[1:]
failures = 0


def expect(status, *needles, command, abi=None):
    """In one line where it refuses."""
    global failures
    environment = dict(os.environ, **({"CUA_FAKE_ABI": abi} if abi else {}))
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    said = done.stderr if status else done.stdout
    good = done.returncode == status and len(said.splitlines()) == 1 and all(n in said for n in needles)
    failures += not good
    print("ok   " if good else "WRONG", done.returncode, (done.stdout + done.stderr).strip())


expect(0, "4.0: ", command=[client_4_0, library, model])
expect(0, "4.1: ", command=[client_4_0, later, model])
for abi in ("3.9", "5.0"):
    expect(3, f"its ABI is {abi}", "needs 4.0", "same major version", command=[client_4_0, fake, model], abi=abi)
expect(3, "its ABI 4.0", "than the 4.1", "update the library", command=[client_4_1, "strict", library])
expect(0, command=[client_4_1, "strict", later])
expect(0, command=[client_4_1, "either", library, model])
expect(0, command=[client_4_1, "either", later, model])
sys.exit(1 if failures else 0)
