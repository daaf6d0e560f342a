#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker among good, slow, rude and broken clients for a while: no wrong answer, and nothing left behind.

usage: soak.py --server FILE --lib FILE --model DIR --requests FILE [--seconds N] [--sanitized] [--seed N]

Every 200 is compared with the answer that the request has alone. Afterwards the queue is empty, the descriptors are
as many as before, the resident set is what it was once the load had settled, within 2 % (not with --sanitized, whose
allocator keeps what is freed), and SIGTERM ends the worker with 0.
"""
import argparse
import collections
import json
import os
import random
import signal
import socket
import statistics
import struct
import sys
import threading
import time

from sample_requests import alone, encoded, samples, several_questions
from worker import PATIENCE, Connection, Worker, get, post, wait_for

GROWTH = 0.02  # of the resident set


class Wrong(Exception):
    pass


class Load:
    """What the clients share."""

    def __init__(self, worker, bodies, expected):
        self.worker, self.bodies, self.expected = worker, bodies, expected
        self.counts = collections.Counter()
        self.wrong = []
        self.over = False
        self._lock = threading.Lock()

    def count(self, what, n=1):
        with self._lock:
            self.counts[what] += n

    def pick(self, draw):
        return draw.randrange(len(self.bodies))

    def compare(self, connection, i):
        """The next answer is that to body `i`."""
        response = connection.response()
        if response is None or response.status != 200 or response.body != self.expected[i]:
            raise Wrong(f"body {i}: {response}")
        self.count("compared")

    def expect(self, connection, status, what):
        response = connection.response()
        if response is None or response.status != status or status >= 400 and list(response.json()) != ["detail"]:
            raise Wrong(f"{what}: {response}")

    def still_usable(self, connection, draw):
        i = self.pick(draw)
        connection.send(post(self.bodies[i]))
        self.compare(connection, i)


# The kinds of clients: each function is one connection's life.

def steady(load, draw):
    with load.worker.connect() as connection:
        for _ in range(draw.randint(1, 20)):
            load.still_usable(connection, draw)


def pipelining(load, draw):
    with load.worker.connect() as connection:
        chosen = [load.pick(draw) if draw.random() < 0.8 else None for _ in range(draw.randint(2, 6))]
        connection.send(b"".join(get("/health") if i is None else post(load.bodies[i]) for i in chosen))
        for i in chosen:
            if i is None:
                load.expect(connection, 200, "health in a pipeline")
            else:
                load.compare(connection, i)


def chunked(body, draw):
    """The body as a chunked request, in one to four chunks."""
    cuts = sorted(draw.sample(range(1, len(body)), draw.randint(0, 3)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)])]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return post(b"", Content_Length=None, Transfer_Encoding="chunked") + chunks + b"0\r\n\r\n"


def slow_sending(load, draw):
    with load.worker.connect() as connection:
        i = load.pick(draw)
        data = post(load.bodies[i]) if draw.random() < 0.5 else chunked(load.bodies[i], draw)
        step = max(1, len(data) // draw.randint(3, 30))
        for at in range(0, len(data), step):
            connection.send(data[at:at + step])
            time.sleep(draw.random() * 0.02)
        load.compare(connection, i)


def slow_reading(load, draw):
    with Connection(load.worker.host, load.worker.port) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        chosen = [load.pick(draw) for _ in range(4)]
        connection.send(b"".join(post(load.bodies[i]) for i in chosen))
        time.sleep(draw.random() * 0.5)
        for i in chosen:
            while b"\r\n\r\n" not in connection.buffer:  # a few bytes at a time
                piece = connection.socket.recv(draw.randint(1, 200))
                if not piece:
                    raise Wrong("a slow reader was cut off")
                connection.buffer += piece
                time.sleep(0.002)
            load.compare(connection, i)


def expecting(load, draw):
    with load.worker.connect() as connection:
        i = load.pick(draw)
        head, body = post(load.bodies[i], Expect="100-continue").split(b"\r\n\r\n", 1)
        connection.send(head + b"\r\n\r\n")
        load.expect(connection, 100, "continue")
        connection.send(body)
        load.compare(connection, i)


PHASES = ("connected", "in the header", "after the header", "in the body", "all sent", "waiting", "in the answer",
          "between requests", "in a pipeline")


def leaving(load, draw):
    """Goes away in any phase: by closing, by a reset, or by closing its sending half alone."""
    phase, manner = draw.choice(PHASES), draw.choice(("close", "reset", "half"))
    i = load.pick(draw)
    data = post(load.bodies[i])
    head = data.index(b"\r\n\r\n") + 4
    sent = {"connected": 0, "in the header": draw.randint(1, head - 1), "after the header": head,
            "in the body": draw.randint(head + 1, len(data) - 1)}.get(phase, len(data))
    connection = load.worker.connect()
    try:
        connection.send(data[:sent])
        if phase == "waiting":
            time.sleep(draw.random() * 0.05)
        elif phase == "in the answer":
            connection.socket.recv(draw.randint(1, 100))
        elif phase == "between requests":
            load.compare(connection, i)
        elif phase == "in a pipeline":
            for _ in range(3):
                connection.send(data)
        else:
            time.sleep(draw.random() * 0.005)
        if manner == "reset":
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif manner == "half":
            try:
                connection.socket.shutdown(socket.SHUT_WR)
                while connection.socket.recv(65536):
                    pass
            except ConnectionError:
                pass
    finally:
        connection.socket.close()
    load.count(f"left {phase}, {manner}")


def question(**fields):
    return {"type": "choice", "instructions": "Go", "criteria": {"a": None}, **fields}


def request(**fields):
    return json.dumps({"model": "cua-s1-4b-0.2", "state": "s", "questions": {"q": question()}, **fields}).encode()


BAD_BODIES = [
    (400, b""), (400, b"{"), (400, b"\xff\xfe"), (400, b"[" * 100_000), (400, b'{"a":1,"a":2}'), (400, b"nonsense" * 999),
    (400, request()[:-1]), (400, request() + b"x"), (400, b"\0" * 5000),
    (422, b"{}"), (422, request(model="another")), (422, request(state="")), (422, request(questions={})),
    (422, request(questions={"q": question(type="score")})), (422, request(questions={"q": question(criteria={})})),
    (422, request(questions={"x" * 100_000: 1})),
    (413, request(questions={str(i): question() for i in range(65)})), (413, request(state="many words " * 20_000))]


def bad_bodies(load, draw):
    """Each is refused, and the connection goes on."""
    with load.worker.connect() as connection:
        for _ in range(draw.randint(1, 5)):
            status, body = draw.choice(BAD_BODIES)
            connection.send(post(body))
            load.expect(connection, status, body[:60])
            load.count(f"refused with {status}")
            if draw.random() < 0.5:
                load.still_usable(connection, draw)


BAD_HTTP = [
    (400, b"nonsense\r\n\r\n"), (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    (400, b"POST /v1/systemone HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
    (400, b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
    (400, b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
    (413, b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Length: 4194305\r\n\r\n{}"),
    (413, b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400001\r\n" + b" " * 0x400001),
    (431, b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")]


def bad_http(load, draw):
    """Each is refused, and the connection closed."""
    status, data = draw.choice(BAD_HTTP)
    with load.worker.connect() as connection:
        if draw.random() < 0.3:
            load.still_usable(connection, draw)
        connection.send(data)
        load.expect(connection, status, data[:100])
        if not connection.closed():
            raise Wrong(f"still open after {data[:100]}")
    load.count(f"closed with {status}")


def probing(load, draw):
    with load.worker.connect() as connection:
        for _ in range(10):
            status, data = draw.choice([
                (200, get("/health")), (200, get("/livez")), (200, get("/readyz")), (200, get("/metrics")),
                (200, get("/v1/models")), (404, get("/nowhere")), (405, get("/v1/systemone"))])
            connection.send(data)
            load.expect(connection, status, data[:40])
            time.sleep(draw.random() * 0.05)


KINDS = {steady: 4, pipelining: 2, slow_sending: 2, slow_reading: 1, expecting: 1, leaving: 4, bad_bodies: 1,
         bad_http: 1, probing: 1}


def live(load, kind, seed):
    draw = random.Random(seed)
    while not load.over and len(load.wrong) < 20:
        try:
            kind(load, draw)
            load.count(kind.__name__)
        except Exception as failure:
            load.wrong.append(f"{kind.__name__}: {failure!r}")


class Resident:
    """The worker's resident set, looked at now and then."""

    def __init__(self, pid):
        self._path = f"/proc/{pid}/statm"
        self._page = os.sysconf("SC_PAGE_SIZE")
        self.seen = []  # (time, bytes)

    def look(self):
        with open(self._path, encoding="ascii") as file:
            self.seen.append((time.monotonic(), int(file.read().split()[1]) * self._page))

    def between(self, begin, end):
        """The median of a part, as shares of the whole time."""
        first, last = self.seen[0][0], self.seen[-1][0]
        return statistics.median(size for at, size in self.seen
                                 if begin <= (at - first) / max(last - first, 1e-9) <= end)


def descriptors(worker):
    return len(os.listdir(f"/proc/{worker.process.pid}/fd"))


def soak(worker, bodies, expected, seconds, seed):
    """Runs all kinds of clients for so long: (what they shared, the resident set over the time)."""
    load = Load(worker, bodies, expected)
    resident = Resident(worker.process.pid)
    kinds = [kind for kind, n in KINDS.items() for _ in range(n)]
    threads = [threading.Thread(target=live, args=(load, kind, f"{seed} {i}")) for i, kind in enumerate(kinds)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and worker.process.poll() is None and not load.wrong:
        resident.look()
        time.sleep(min(0.5, seconds / 60))
    load.over = True
    for thread in threads:
        thread.join(2 * PATIENCE)
    if any(thread.is_alive() for thread in threads):
        load.wrong.append("a client is still waiting")
    return load, resident


def main():
    parser = argparse.ArgumentParser()
    for flag in ("server", "lib", "model", "requests"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args()
    server, lib = os.path.abspath(options.server), os.path.abspath(options.lib)
    single = samples(options.requests)
    if options.sanitized:  # and slow: a queue of large requests would outlast the clients' patience
        bodies = encoded(single[::3] + several_questions(single, 4, 2))
        bodies.append(request(state="A long page. " * 100))
    else:
        bodies = encoded(single + several_questions(single, 2, 8) + several_questions(single, 20, 2)
                         + several_questions(single, 64, 1))
        bodies.append(request(state="A long page. " * 600))
    with Worker(server, lib, options.model, "--batch", "off", "--log-level", "error") as worker:
        expected = alone(worker, bodies)
    failures = []

    def check(name, condition, *detail):
        if not condition:
            failures.append(name)
            print("FAILED", name, *detail, file=sys.stderr)

    with Worker(server, lib, options.model, "--log-level", "warning") as worker:
        # What it holds for good it has by now.
        check("the first answers", alone(worker, bodies) == expected)
        wait_for(lambda: worker.metrics()["cua_queue_questions"] == 0, "an empty queue")
        time.sleep(0.1)
        before = descriptors(worker)
        load, resident = soak(worker, bodies, expected, options.seconds, options.seed)
        check("alive", worker.process.poll() is None, worker.process.returncode, worker.log_text()[-3000:])
        check("no wrong answer", not load.wrong, *load.wrong[:3])
        for kind in KINDS:
            check(f"{kind.__name__} took part", load.counts[kind.__name__] > 0)
        if worker.process.poll() is None:
            wait_for(lambda: worker.metrics()["cua_queue_questions"] == worker.metrics()["cua_queue_tokens"] == 0,
                     "an empty queue")
            metrics = worker.metrics()
            check("some have gone while they waited", metrics['cua_requests_total{code="gone"}'] > 0)
            check("nothing has failed", metrics['cua_requests_total{code="5xx"}'] == 0, metrics)
            check("batches formed", metrics["cua_batch_prompts_sum"] > metrics["cua_batch_prompts_count"])
            wait_for(lambda: descriptors(worker) <= before, f"{before} descriptors, not {descriptors(worker)}")
            check("as many descriptors as before", descriptors(worker) == before, descriptors(worker), before)
            settled, at_end = resident.between(0.2, 0.4), resident.between(0.8, 1)
            print(f"resident set: {settled / 2**20:.2f} MiB once settled, {at_end / 2**20:.2f} at the end")
            if not options.sanitized:
                check("the resident set is flat", at_end <= settled * (1 + GROWTH),
                      [f"{size / 2**20:.2f}" for _, size in resident.seen[::max(1, len(resident.seen) // 40)]])
            status, rest = worker.stop(signal.SIGTERM)
            check("ends well", status == 0 and rest == b"", status, rest, worker.log_text()[-3000:])
            check("an empty log", worker.log_text() == "", worker.log_text()[:3000])
        for what, n in sorted(load.counts.items()):
            print(f"{n:8} {what}")
    print("failed: " + ", ".join(failures) if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
