# SPDX-License-Identifier: Apache-2.0
"""Starts a cua-server for a test, and speaks HTTP to it byte by byte."""
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time

MODEL_ID = "cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text"
PATIENCE = 60  # seconds before a test gives a worker up


def free_port():
    """For a worker that is asked before it says where it listens, which is when it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Worker:
    """A running worker. The library comes from `lib`; extra environment from `env`."""

    def __init__(self, server, lib, model, *flags, port=0, env=None):
        self.log = tempfile.TemporaryFile()
        command = [server, "--cuda-lib", lib, "--model", model, "--port", str(port), *flags]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, env={**clean_environment(), **(env or {})})
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline().decode() if ready else ""
        if not line.startswith("listening on "):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no worker: {line!r}\n{self.log_text()}")
        self.line = line
        self.host, port = line.removeprefix("listening on ").strip().rsplit(":", 1)
        self.host = self.host.strip("[]")
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def log_text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self, number=signal.SIGTERM):
        """Sends a signal and gives the exit status and the rest of stdout."""
        self.process.send_signal(number)
        rest = self.process.stdout.read()
        return self.process.wait(PATIENCE), rest

    def connect(self):
        return Connection(self.host, self.port)

    def exchange(self, data):
        """One request on a connection of its own."""
        with self.connect() as connection:
            connection.send(data)
            return connection.response()

    def post(self, body, **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.exchange(post(body, **headers))

    def metrics(self):
        """{series: value} of /metrics."""
        text = self.exchange(get("/metrics")).body.decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {series: float(value) for series, value in lines}


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith(("CUA_S1_", "CUA_FAKE_"))}


def post(body, target="/v1/systemone", **headers):
    head = {"Host": "test", "Content_Length": str(len(body)), **headers}
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in head.items() if v is not None)
    return f"POST {target} HTTP/1.1\r\n{lines}\r\n".encode() + body


def get(target, method="GET", **headers):
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in {"Host": "test", **headers}.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body.decode("utf-8"))

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


class Connection:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=PATIENCE)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # an answer may have come before all was sent

    def _more(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def response(self, head=False):
        """The next response, of a HEAD request where `head`; None at the end of the connection."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                assert not self.buffer, self.buffer
                return None
        text, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = text.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            assert name.lower() not in headers, line
            headers[name.lower()] = value.strip()
        status = int(lines[0].split()[1])
        length = 0 if head or status in (100, 204) else int(headers["content-length"])
        while len(self.buffer) < length:
            assert self._more(), "the body was cut"
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Response(status, headers, body)

    def closed(self):
        """Whether the other side has closed, waiting for it."""
        try:
            return not self._more()
        except ConnectionResetError:
            return True


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"gave up waiting for {what}"
        time.sleep(0.01)
