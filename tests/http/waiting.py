#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What waits, and for how long: batches, a full queue, timeouts, clients that go, loading and ending, with the tests'
own library.

usage: waiting.py --server FILE --fake FILE
"""
import argparse
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from worker import PATIENCE, Worker, clean_environment, free_port, get, post, wait_for

failures = []
checks = 0


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def body(state, questions=1):
    question = {"type": "choice", "instructions": "Go", "criteria": {"yes": None, "no": None}}
    return {"model": "cua-s1-4b-0.2", "state": state, "questions": {f"q{i}": question for i in range(questions)}}


def request(what):
    """The bytes of a request."""
    return post(json.dumps(what).encode())


class Calls:
    """The sizes of the library's calls so far, the warm-up's left out."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "calls")

    def sizes(self):
        with open(self.path, encoding="utf-8") as file:
            return [int(line) for line in file][1:]


def together(work):
    """Runs work(i) for each i in `range(n)` on threads of their own, and gives what they return."""
    def run(n):
        results = [None] * n

        def one(i):
            results[i] = work(i)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        return results
    return run


def batches(server, fake, folder):
    for flags, most, least in (([], 4, 2), (["--batch", "off"], 1, 41)):
        calls = Calls(folder)
        with Worker(server, fake, "x", *flags, env={"CUA_FAKE_CALL_US": "20000", "CUA_FAKE_CALLS": calls.path}) as worker:
            alone = [worker.post(body(f"state {i}")).json() for i in range(20)]
            before = len(calls.sizes())
            answers = together(lambda i: worker.post(body(f"state {i % 20}")).json())(41)
            check(f"{flags}: an answer does not depend on its company", answers == [alone[i % 20] for i in range(41)])
            sizes = calls.sizes()[before:]
            check(f"{flags}: every prompt once", sum(sizes) == 41, sizes)
            check(f"{flags}: passes", max(sizes) >= most and len(sizes) >= least and (most > 1 or max(sizes) == 1), sizes)
        os.remove(calls.path)
    # Questions of one request go together too, and come back in their order.
    with Worker(server, fake, "x", env={"CUA_FAKE_CALL_US": "1000"}) as worker:
        answer = worker.post(body("many", 64)).json()["answers"]
        check("64 questions in order", list(answer) == [f"q{i}" for i in range(64)])
    with Worker(server, fake, "x", "--max-batch-tokens", "2000", env={"CUA_FAKE_CALL_US": "30000"}) as worker:
        order = []
        big = threading.Thread(target=lambda: (worker.post(body("x" * 3000, 64)), order.append("64")))
        big.start()
        time.sleep(0.1)
        together(lambda i: (worker.post(body("small")), order.append("1")))(5)
        big.join(PATIENCE)
        check("64 questions do not starve one", order == ["1"] * 5 + ["64"], order)


def full(server, fake):
    with Worker(server, fake, "x", "--max-queue-requests", "4", "--batch", "off",
                env={"CUA_FAKE_CALL_US": "200000"}) as worker:
        responses = together(lambda i: worker.post(body(f"s{i}")))(12)
        statuses = [response.status for response in responses]
        check("some are answered, the others told to come again", set(statuses) == {200, 503}
              and 4 <= statuses.count(200) <= 6, statuses)
        for response in responses:
            if response.status == 503:
                check("a full queue says so", "queue is full" in response.json()["detail"], response)
                seconds, milliseconds = response.headers.get("retry-after"), response.headers.get("retry-after-ms")
                check("and when to come again", seconds is not None and int(seconds) >= 1
                      and 1 <= int(milliseconds) <= 1000 * int(seconds), seconds, milliseconds)
        check("one of them comes again", worker.post(body("again")).status == 200)
        check("a request that is alone is never too large", worker.post(body("x", 6)).status == 200)
    with Worker(server, fake, "x", "--max-queue-tokens", "1000", "--batch", "off",
                env={"CUA_FAKE_CALL_US": "500000"}) as worker:
        responses = together(lambda i: worker.post(body("y" * 8000)))(10)
        statuses = [response.status for response in responses]
        check("tokens that wait are bounded too", set(statuses) == {200, 503}, statuses)
    with Worker(server, fake, "x", "--request-timeout", "0.3", "--batch", "off",
                env={"CUA_FAKE_CALL_US": "200000"}) as worker:
        responses = together(lambda i: worker.post(body(f"s{i}")))(8)
        statuses = [response.status for response in responses]
        check("who waits longer than the limit is told", set(statuses) == {200, 503}, statuses)
        check("with the limit", all("300 ms" in r.json()["detail"] for r in responses if r.status == 503))
        check("one alone is in time", worker.post(body("alone")).status == 200)
    with Worker(server, fake, "x", "--request-timeout", "0.1", env={"CUA_FAKE_CALL_US": "300000"}) as worker:
        check("a pass that has begun is not thrown away", worker.post(body("running")).status == 200)


def gone(server, fake, folder):
    """50 requests queued, 49 clients killed: at most 2 passes run."""
    calls, hold = Calls(folder), os.path.join(folder, "hold")
    for flags in ([], ["--batch", "off"]):
        with Worker(server, fake, "x", *flags, env={"CUA_FAKE_HOLD": hold, "CUA_FAKE_CALLS": calls.path}) as worker:
            with open(hold, "w", encoding="ascii"):
                pass
            clients = []
            for i in range(50):
                client = socket.create_connection((worker.host, worker.port))
                client.sendall(request(body(f"client {i}")))
                clients.append(client)
                if i == 0:
                    wait_for(calls.sizes, "the first pass")
            wait_for(lambda: worker.metrics()["cua_queue_questions"] == 49, "49 that wait")
            for i, client in enumerate(clients[:49]):
                if i % 2:  # a process that ends closes, or resets where it had not read all
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            wait_for(lambda: worker.metrics()["cua_queue_questions"] == 1, "one that waits")
            os.remove(hold)
            clients[49].settimeout(PATIENCE)
            answer = clients[49].recv(65536)
            check(f"{flags}: the one that stayed is answered", answer.startswith(b"HTTP/1.1 200"), answer[:80])
            check(f"{flags}: two passes for 50 requests", calls.sizes() == [1, 1], calls.sizes())
            left = worker.metrics()['cua_requests_total{code="gone"}']
            check(f"{flags}: 48 were dropped while they waited", left == 48, left)
            clients[49].close()
            check(f"{flags}: the worker is well", worker.post(body("after")).status == 200)
        os.remove(calls.path)
    with Worker(server, fake, "x", env={"CUA_FAKE_HOLD": hold, "CUA_FAKE_CALLS": calls.path}) as worker:
        # Who has sent more while it waits may leave too, and what it has sent is not lost where it stays.
        with open(hold, "w", encoding="ascii"):
            pass
        with worker.connect() as first, worker.connect() as stays:
            first.send(request(body("running")))
            wait_for(calls.sizes, "the first pass")
            stays.send(request(body("stays")))
            leaves = worker.connect()
            leaves.send(request(body("leaves")))
            wait_for(lambda: worker.metrics()["cua_queue_questions"] == 2, "two that wait")
            for size in (1, 5000, 30000):  # the last of them fills what is kept
                stays.send(request(body("x" * size)))
                leaves.send(request(body("more"))[:-1])
            leaves.socket.close()
            wait_for(lambda: worker.metrics()["cua_queue_questions"] == 1, "one that waits")
            os.remove(hold)
            answers = [stays.response() for _ in range(4)]
            check("a pipeline that came in pieces is answered", [a.status for a in answers] == [200] * 4, answers)
            check("each with its own", [a.json()["usage"]["input_tokens"] for a in answers]
                  == [worker.post(body(s)).json()["usage"]["input_tokens"] for s in ("stays", "x", "x" * 5000, "x" * 30000)])
    os.remove(calls.path)
    with Worker(server, fake, "x", env={"CUA_FAKE_CALL_US": "300000"}) as worker:
        # A pipelining client is there though it sends while it waits.
        with socket.create_connection((worker.host, worker.port)) as client:
            client.sendall(request(body("one")))
            time.sleep(0.05)
            client.sendall(request(body("two")))
            client.settimeout(PATIENCE)
            data = b""
            while data.count(b'"usage"') < 2:
                more = client.recv(65536)
                if not more:
                    break
                data += more
            check("a pipeline is answered in full", data.count(b"HTTP/1.1 200") == 2, data[:200])


def raw(port, data, timeout=PATIENCE):
    with socket.create_connection(("127.0.0.1", port), timeout) as client:
        client.settimeout(timeout)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while True:
            more = client.recv(65536)
            if not more:
                return answer
            answer += more


def loading(server, fake):
    """Listens at once; says loading until the first decision is made."""
    port = free_port()
    environment = {**clean_environment(), "CUA_FAKE_LOAD_US": "1500000"}
    process = subprocess.Popen([server, "--cuda-lib", fake, "--model", "x", "--port", str(port)], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def accepts():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    wait_for(accepts, "the socket")
    answer = raw(port, get("/health"))
    check("health while loading", b" 503 " in answer and b'{"status":"loading"}' in answer, answer)
    check("livez while loading", b" 200 " in raw(port, get("/livez")))
    answer = raw(port, request(body("early")))
    check("a decision while loading", b" 503 " in answer and b"Retry-After" in answer and b"loading" in answer, answer)
    line = process.stdout.readline()
    check("ready", line.startswith(b"listening on ") and b" 200 " in raw(port, get("/readyz")), line)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    check("SIGHUP harms nothing", process.poll() is None and b" 200 " in raw(port, get("/health")))
    process.send_signal(signal.SIGTERM)
    check("ends well", process.wait(PATIENCE) == 0)
    process.stdout.close()
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen([server, "--cuda-lib", fake, "--model", "x", "--port", str(port)], env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(accepts, "the socket")
        process.send_signal(number)
        check(f"signal {number} while loading", process.wait(PATIENCE) == 0)
    done = subprocess.run([server, "--cuda-lib", fake, "--model", "x", "--port", str(port)], timeout=PATIENCE,
                          env={**environment, "CUA_FAKE_CREATE": "3"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    check("a model that does not load", done.returncode == 4 and b"refuses to open" in done.stderr and not done.stdout, done)


def ending(server, fake):
    """TERM under load: every accepted request is answered; --shutdown-timeout ends it otherwise."""
    with Worker(server, fake, "x", "--batch", "off", env={"CUA_FAKE_CALL_US": "30000"}) as worker:
        clients = []
        for i in range(30):
            client = socket.create_connection((worker.host, worker.port))
            client.sendall(request(body(f"client {i}")))
            client.settimeout(PATIENCE)
            clients.append(client)
        time.sleep(0.2)
        worker.process.send_signal(signal.SIGTERM)
        answers = [client.recv(65536) for client in clients]
        check("every accepted request is answered", all(a.startswith(b"HTTP/1.1 200") for a in answers),
              [a[:30] for a in answers])
        check("then it ends", worker.process.wait(PATIENCE) == 0)
        for client in clients:
            client.close()
    with Worker(server, fake, "x") as worker:
        clients = []
        for part in (request(body("half"))[:-3], b"POST /v1/systemone HTTP/1.1\r\nHost: t\r\n", b"nonsense\r\n\r\n", b""):
            clients.append(socket.create_connection((worker.host, worker.port)))
            clients[-1].sendall(part)
        time.sleep(0.3)
        began = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        check("a request that has not come to its end holds nobody up",
              worker.process.wait(PATIENCE) == 0 and time.monotonic() - began < 4, time.monotonic() - began)
        for client in clients:
            client.close()
    with Worker(server, fake, "x") as worker:  # parts of bodies are there to be read as it is told to stop
        clients = [socket.create_connection((worker.host, worker.port)) for _ in range(40)]
        worker.process.send_signal(signal.SIGSTOP)
        for client in clients:
            client.setblocking(False)
            client.send(post(b" " * 300_000, Content_Length="4000000"))
        worker.process.send_signal(signal.SIGTERM)
        worker.process.send_signal(signal.SIGCONT)
        try:
            status = worker.process.wait(PATIENCE / 2)  # their bodies may take PATIENCE
        except subprocess.TimeoutExpired:
            status = None
        check("nor do those with much of a body on its way", status == 0, status)
        for client in clients:
            client.close()
    with Worker(server, fake, "x", "--shutdown-timeout", "0.5", env={"CUA_FAKE_CALL_US": "4000000"}) as worker:
        client = socket.create_connection((worker.host, worker.port))
        client.sendall(request(body("slow")))
        time.sleep(0.2)
        began = time.time()
        worker.process.send_signal(signal.SIGTERM)
        check("the limit ends it", worker.process.wait(PATIENCE) == 0 and time.time() - began < 10)
        client.close()


def ending_under_load(server, fake):
    """TERM while connections ask and ask: whatever was accepted is answered, by the worker's own log."""
    with Worker(server, fake, "x", "--log-format", "json",
                env={"CUA_FAKE_CALL_US": "3000", "CUA_FAKE_PROMPT_US": "500"}) as worker:
        answered, cut = [], []

        def ask(i):
            with worker.connect() as connection:
                for n in range(100_000):
                    wanted = [f"{i}-{n}-{k}" for k in range(1 + i % 3)]  # some in pipelines
                    connection.send(b"".join(post(json.dumps(body(w)).encode(), X_Request_Id=w) for w in wanted))
                    for _ in wanted:
                        try:
                            response = connection.response()
                        except ConnectionError:
                            return
                        except AssertionError as failure:
                            cut.append(failure)
                            return
                        if response is None:
                            return
                        answered.append((response.headers["x-request-id"], response.status))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(answered) > 500, "load")
        worker.process.send_signal(signal.SIGTERM)
        check("ends under load", worker.process.wait(PATIENCE) == 0)
        for thread in threads:
            thread.join(PATIENCE)
        lines = [json.loads(line) for line in worker.log_text().splitlines()]
        accepted = [(line["id"], int(line["status"])) for line in lines if line["message"] == "decision"]
        check("everything accepted is answered, once, and well", sorted(answered) == sorted(accepted)
              and {status for _, status in accepted} == {200} and not cut,
              sorted(set(accepted) ^ set(answered))[:5], len(accepted), len(answered), cut[:2])


def supervised(server, fake, folder):
    path = os.path.join(folder, "notify")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    listener.settimeout(PATIENCE)
    with Worker(server, fake, "x", env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"}) as worker:
        first = listener.recv(4096)
        check("READY", first.startswith(b"READY=1"), first)
        check("WATCHDOG", [listener.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3)
        worker.process.send_signal(signal.SIGTERM)
        said = listener.recv(4096)
        while said == b"WATCHDOG=1":
            said = listener.recv(4096)
        check("STOPPING", said == b"STOPPING=1", said)
        check("ends", worker.process.wait(PATIENCE) == 0)
    listener.close()
    with Worker(server, fake, "x", env={"NOTIFY_SOCKET": "@" + "cua-test-" + str(os.getpid())}) as worker:
        check("nobody listens, nobody minds", worker.stop()[0] == 0)


def checking(server, fake):
    done = subprocess.run([server, "--cuda-lib", fake, "--model", "x", "--check"], capture_output=True, text=True,
                          timeout=PATIENCE, check=False, env=clean_environment())
    check("--check", done.returncode == 0 and "device: none" in done.stdout and "ready to serve" in done.stdout
          and "GB resident" in done.stdout, done)
    done = subprocess.run([server, "--cuda-lib", fake, "--model", "x", "--check"], capture_output=True, text=True,
                          timeout=PATIENCE, check=False, env={**clean_environment(), "CUA_FAKE_CREATE": "5"})
    check("--check of what does not load", done.returncode == 4 and "ready" not in done.stdout, done)


def several(server, fake):
    with Worker(server, fake, "x", "--devices", "cpu,cpu", "--batch", "off", env={"CUA_FAKE_CALL_US": "50000"}) as worker:
        answers = together(lambda i: worker.post(body(f"s{i}")).status)(20)
        check("two engines, one queue", answers == [200] * 20, answers)
        check("on one request too", worker.post(body("many", 20)).status == 200)
    with Worker(server, fake, "x", "--max-connections", "5") as worker:
        clients = [socket.create_connection((worker.host, worker.port)) for _ in range(5)]
        time.sleep(0.1)
        answer = worker.exchange(get("/health"))
        check("one connection too many", answer.status == 503 and "connections" in answer.json()["detail"], answer)
        for client in clients:
            client.close()
        wait_for(lambda: worker.exchange(get("/health")).status == 200, "room")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        worker = Worker(server, fake, "x").__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        clients = [socket.create_connection((worker.host, worker.port)) for _ in range(100)]
        check("more connections than the soft limit of open files", worker.exchange(get("/health")).status == 200)
        for client in clients:
            client.close()
    finally:
        worker.__exit__(None, None, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--fake", required=True)
    options = parser.parse_args()
    server, fake = os.path.abspath(options.server), os.path.abspath(options.fake)
    with tempfile.TemporaryDirectory() as folder:
        batches(server, fake, folder)
        full(server, fake)
        gone(server, fake, folder)
        loading(server, fake)
        ending(server, fake)
        ending_under_load(server, fake)
        supervised(server, fake, folder)
        checking(server, fake)
        several(server, fake)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
