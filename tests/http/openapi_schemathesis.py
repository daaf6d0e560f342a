#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GET /openapi.json and the worker against each other: schemathesis makes requests of it, good and bad ones, and
compares statuses, headers and bodies.

usage: openapi_schemathesis.py --server FILE --lib FILE --model DIR --fake FILE [--seed N] [--examples N]

Run by client_venv.py. clients/schemathesis.toml is its configuration.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from held_worker import Held
from worker import Worker, get

CONFIGURATION = Path(__file__).parent / "clients" / "schemathesis.toml"
PATIENCE = 400

failures = 0


def attempt(name, options, folder, worker, schema, *flags, examples=None):
    """A run of schemathesis with all of its checks."""
    global failures
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION), "run", schema,
        "--url", f"http://127.0.0.1:{worker.port}", "--checks", "all", "--phases", "examples,coverage,fuzzing",
        "--seed", str(options.seed), "--max-examples", str(examples or options.examples), "--continue-on-failure",
        "--generation-database", "none", "--request-timeout", "60", "--warnings", "off", "--no-color", *flags]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        failures += 1
        print(f"FAILED {name}: status {done.returncode}\n{done.stdout}", file=sys.stderr)
    else:
        said = [line.strip() for line in done.stdout.splitlines() if "generated" in line or "in total" in line]
        print(f"{name}: {'; '.join(said)}")
    if worker.process.poll() is not None or worker.exchange(get("/health")).status != 200:
        failures += 1
        print(f"FAILED {name}: the worker is not well\n{worker.log_text()}", file=sys.stderr)


def document(worker, folder, **changes):
    """The worker's document as a file: of a document at an address, schemathesis does not try the address itself."""
    path = Path(folder, "openapi.json")
    path.write_text(json.dumps({**worker.exchange(get("/openapi.json")).json(), **changes}))
    return str(path)


def main():
    parser = argparse.ArgumentParser()
    for flag in ("server", "lib", "model", "fake"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=40, help="at most, for each operation")
    options = parser.parse_args()
    server, lib, fake = (os.path.abspath(path) for path in (options.server, options.lib, options.fake))
    with tempfile.TemporaryDirectory() as folder:
        with Worker(server, lib, options.model, "--log-level", "warning") as worker:
            attempt("open to all", options, folder, worker, document(worker, folder))
        keys = Path(folder, "keys")
        keys.write_text("right-key\n", encoding="ascii")
        with Worker(server, fake, "x", "--api-key-file", str(keys), "--protect-metrics", "--log-level", "warning") as worker:
            # The key is required here, so schemathesis tries without one and with wrong ones too.
            attempt("with a key", options, folder, worker, document(worker, folder, security=[{"bearer": []}]),
                    "--header", "Authorization: Bearer right-key", examples=5)
        with Held(server, fake, folder, "--max-queue-requests", "1", "--log-level", "error") as place, place.holding(1):
            # Every valid request is 503 here, as it should be.
            attempt("a full queue", options, folder, place.worker, document(place.worker, folder),
                    "--include-path", "/v1/systemone", "--exclude-checks",
                    "not_a_server_error,positive_data_acceptance", examples=5)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
