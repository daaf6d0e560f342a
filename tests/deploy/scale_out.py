#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three workers behind the proxy configurations of deploy/, under load: one drained, one killed, back again.

usage: scale_out.py --server FILE --fake FILE --deploy DIR haproxy|nginx

Without the proxy: exit status 77. Only its addresses are replaced in a configuration.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "http"))
from worker import PATIENCE, Worker, clean_environment, free_port, get, wait_for  # noqa: E402

CLIENTS = 8
WORKERS = 3
DRAIN = 3  # seconds: longer than the proxies take to see that a worker is not ready
failures = []
checks = 0


def check(name, passed, *found):
    global checks
    checks += 1
    if not passed:
        failures.append(name)
        print("FAILED", name, *found, flush=True)


def body(number):
    """A decision that is its own, and one in four longer than a proxy's first buffer."""
    padding = "x" * (20000 if number % 4 == 0 else 10)
    return json.dumps({"model": "cua-s1-4b-0.2", "state": f"{number} {padding}", "questions": {
        "q": {"type": "choice", "instructions": "pick", "criteria": {"a": "one", "b": "two", "c": "three"}}}}).encode()


class Workers:
    def __init__(self, server, fake):
        self.server, self.fake = server, fake
        self.ports = [free_port() for _ in range(WORKERS)]
        self.all = [None] * WORKERS
        for i in range(WORKERS):
            self.start(i)

    def start(self, i):
        self.all[i] = Worker(self.server, self.fake, "x", "--drain-delay", str(DRAIN), "--batch", "off",
                             port=self.ports[i], env={"CUA_FAKE_CALL_US": "4000"})

    def questions(self, i):
        return self.all[i].metrics()["cua_questions_total"]

    def close(self):
        for worker in self.all:
            worker.__exit__()


class Load:
    """Clients that ask without a pause on connections that they keep, and note every failure."""

    def __init__(self, port, expected):
        self.port, self.expected = port, expected
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.done, self.failed, self.wrong = 0, [], []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        connection = None
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
                connection.request("POST", "/v1/systemone", body(number), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
                if answer.will_close:
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException) as error:
                status, content = repr(error), b""
                connection.close()
                connection = None
            with self.lock:
                self.done += 1
                if status != 200:
                    self.failed.append((began, status, content[:100]))
                elif json.loads(content)["answers"] != self.expected[number % len(self.expected)]:
                    self.wrong.append((number, content[:200]))
            number = (number + CLIENTS) % len(self.expected)
        if connection is not None:
            connection.close()

    def asked(self, more):
        """Waits for so many more answers."""
        goal = self.done + more
        wait_for(lambda: self.done >= goal, f"{more} more answers")

    def take(self):
        with self.lock:
            failed, self.failed = self.failed, []
        return failed

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def replaced(text, old, new):
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


class Proxy:
    def __init__(self, kind, deploy, ports, folder, again=True):
        self.port = free_port()
        environment = clean_environment()
        with open(os.path.join(deploy, kind, "haproxy.cfg" if kind == "haproxy" else "nginx.conf"), encoding="utf-8") as file:
            text = file.read()
        path = os.path.join(folder, kind)
        if kind == "haproxy":
            environment.update({f"CUA_WORKER_{i + 1}": f"127.0.0.1:{port}" for i, port in enumerate(ports)})
            environment.update(CUA_BIND=f"127.0.0.1:{self.port}", CUA_TELEMETRY_BIND=f"127.0.0.1:{free_port()}")
            if not again:
                text = re.sub(r"(?m)^  retry-on .*$", "  retry-on conn-failure", text)  # what was never sent
                assert text.count("retry-on conn-failure\n") == 1
            command = [shutil.which("haproxy", path=search_path()), "-db", "-f", path]
        else:
            text = replaced(text, "listen 8080;", f"listen 127.0.0.1:{self.port};")
            text = replaced(text, "pid /run/nginx.pid;", f"pid {folder}/nginx.pid;\ndaemon off;")
            for i, port in enumerate(ports):
                text = replaced(text, f"server 10.0.0.1{i + 1}:8000", f"server 127.0.0.1:{port}")
            command = [shutil.which("nginx", path=search_path()), "-p", folder, "-c", path]
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.log = open(os.path.join(folder, kind + ".log"), "wb")
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)

    def ready(self):
        """Whether a decision is made through it."""
        assert self.process.poll() is None, open(self.log.name, encoding="utf-8").read()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            connection.request("POST", "/v1/systemone", body(1))
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.log.close()


def search_path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def under_load(workers, load):
    wait_for(lambda: all(workers.questions(i) > 20 for i in range(WORKERS)), "load on every worker")
    check("calm", not load.take(), load.failed)

    workers.all[0].process.send_signal(signal.SIGTERM)
    load.asked(300)
    number, rest = workers.all[0].process.wait(PATIENCE), workers.all[0].process.stdout.read()
    load.asked(300)
    failed = load.take()
    check("a drained worker costs no request", not failed, failed[:3], len(failed))
    check("a drained worker ends well", number == 0 and not rest, number, rest)
    workers.all[0].__exit__()
    workers.start(0)
    wait_for(lambda: workers.questions(0) > 20, "load on the worker that was drained")

    workers.all[1].process.kill()
    workers.all[1].process.wait()
    load.asked(600)
    failed = load.take()
    check("a killed worker costs no request", not failed, failed[:3], len(failed))
    workers.all[1].__exit__()
    workers.start(1)
    wait_for(lambda: workers.questions(1) > 20, "load on the worker that was killed")
    check("calm again", not load.take(), load.failed)


def killed_without_retry(workers, load):
    """Only what was on its way when the worker died may fail, one a client at most."""
    wait_for(lambda: all(workers.questions(i) > 20 for i in range(WORKERS)), "load on every worker")
    load.take()
    workers.all[2].process.kill()
    workers.all[2].process.wait()
    dead = time.monotonic()
    load.asked(600)
    failed = load.take()
    check("at most what was in flight fails", len(failed) <= CLIENTS and all(began <= dead for began, _, _ in failed),
          dead, len(failed), failed[:3])
    workers.all[2].__exit__()
    workers.start(2)
    return len(failed)


def main():
    parser = argparse.ArgumentParser()
    for name in ("server", "fake", "deploy"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("kind", choices=["haproxy", "nginx"])
    options = parser.parse_args()
    if shutil.which(options.kind, path=search_path()) is None:
        print(f"skipped: there is no {options.kind}")
        return 77
    workers = Workers(os.path.abspath(options.server), os.path.abspath(options.fake))
    expected = []
    for number in range(4 * CLIENTS + 1):  # so that each client meets each of them
        answer = workers.all[0].post(body(number))
        assert answer.status == 200, answer
        expected.append(answer.json()["answers"])
    check("the answers differ", len({json.dumps(answer) for answer in expected}) > 1)
    lost = None
    with tempfile.TemporaryDirectory() as folder:
        for again in (True, False) if options.kind == "haproxy" else (True,):
            proxy = Proxy(options.kind, options.deploy, workers.ports, folder, again)
            wait_for(proxy.ready, "the proxy")
            load = Load(proxy.port, expected)
            try:
                if again:
                    under_load(workers, load)
                else:
                    lost = killed_without_retry(workers, load)
            finally:
                load.stop()
                proxy.stop()
            check("no answer is another's", not load.wrong, load.wrong[:3])
            print(f"{load.done} answers through {options.kind}", flush=True)
    if lost is not None:
        print(f"{lost} of {CLIENTS} in flight lost where nothing is sent again")
    check("workers stay whole", all(worker.exchange(get("/readyz")).status == 200 for worker in workers.all))
    workers.close()
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
