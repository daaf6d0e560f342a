#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the worker is reached beside plain POSTs over TCP: pages in a browser, Unix-domain sockets, openapi.json, its own page.

usage: surface.py --server FILE --fake FILE --openapi FILE --page FILE
"""
import argparse
import base64
import hashlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile

from worker import PATIENCE, Connection, Worker, clean_environment, get, post, wait_for

failures = []
checks = 0
BODY = json.dumps({"model": "cua-s1-4b-0.2", "state": "x",
                   "questions": {"q": {"type": "choice", "instructions": "", "criteria": {"a": None, "b": None}}}}).encode()


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def preflight(worker, origin, method="POST", headers=None, target="/v1/systemone"):
    return worker.exchange(get(target, "OPTIONS", Origin=origin, Access_Control_Request_Method=method,
                               **({"Access_Control_Request_Headers": headers} if headers else {})))


def refused_by_http(**headers):
    """(status, request): what is refused after its head was read, before its body was."""
    chunked = post(b"", Content_Length=None, Transfer_Encoding="chunked", Authorization="Bearer key", **headers)
    return [(413, post(b"", Content_Length="4194305", **headers)), (413, chunked + b"500000\r\n"), (400, chunked + b"zz"),
            (431, chunked + b"5;" + b"e" * 40000), (400, post(b"", Content_Length=None, Transfer_Encoding="gzip", **headers)),
            (400, post(BODY, HOST="another", **headers))]


def cors(server, fake):
    one, two, other = "https://app.example", "http://localhost:3000", "https://evil.example"
    with Worker(server, fake, "x", "--cors-origin", one, "--cors-origin", two, env={"CUA_S1_API_KEY": "key"}) as worker:
        for origin in (one, two):
            wanted = "authorization, Content-Type,x-typesafe-client-version , X-Other, x-typesafe-<b>"
            response = preflight(worker, origin, headers=wanted)
            allowed = [name.strip() for name in response.headers.get("access-control-allow-headers", "").split(",")]
            check("a preflight needs no key", response.status == 204 and response.body == b"", response)
            check("its answer", response.headers.get("access-control-allow-origin") == origin
                  and response.headers.get("access-control-allow-methods") == "GET, POST"
                  and response.headers.get("vary") == "Origin" and "content-length" not in response.headers, response)
            check("the headers that may be sent", allowed == ["authorization", "Content-Type", "x-typesafe-client-version"],
                  allowed)
            check("none asked, none told", "access-control-allow-headers" not in preflight(worker, origin).headers)
            for status, data in ((200, post(BODY, Origin=origin, Authorization="Bearer key")),
                                 (401, post(BODY, Origin=origin)), (422, post(b"{}", Origin=origin, Authorization="Bearer key")),
                                 (404, get("/nowhere", Origin=origin)), (200, get("/health", Origin=origin))):
                response = worker.exchange(data)
                check("a page may read the answer", response.status == status
                      and response.headers.get("access-control-allow-origin") == origin
                      and "retry-after-ms" in response.headers.get("access-control-expose-headers", ""), response)
            for status, data in refused_by_http(Origin=origin, X_Request_Id="mine"):
                response = worker.exchange(data)
                check("what HTTP itself refuses too, with its id", response.status == status
                      and response.headers.get("access-control-allow-origin") == origin
                      and response.headers["x-request-id"] == response.headers["x-typesafe-request-id"] == "mine", response)
            with worker.connect() as connection:  # keeps the connection for what comes next
                for _ in range(2):
                    connection.send(get("/v1/systemone", "OPTIONS", Origin=origin, Access_Control_Request_Method="POST"))
                    check("kept open", connection.response().status == 204)
        for origin in (other, one + ".evil.example", one.upper(), one + ":443", "null", ""):
            response = preflight(worker, origin)
            check("another origin is not let in", response.status == 405
                  and "access-control-allow-origin" not in response.headers, origin, response)
            response = worker.exchange(post(BODY, Origin=origin, Authorization="Bearer key"))
            check("nor may it read", response.status == 200 and "access-control-allow-origin" not in response.headers
                  and response.headers.get("vary") == "Origin", origin, response)
        check("OPTIONS that is no preflight", worker.exchange(get("/v1/systemone", "OPTIONS", Origin=one)).status == 405)
        check("no such path", preflight(worker, one, target="/nowhere").status == 404)
    with Worker(server, fake, "x", "--cors-origin", "*") as worker:
        check("all", preflight(worker, other).headers.get("access-control-allow-origin") == other)
    with Worker(server, fake, "x") as worker:
        response = preflight(worker, one)
        check("none by default", response.status == 405 and "vary" not in response.headers
              and not [name for name in response.headers if name.startswith("access-control")], response)


def local_connection(path):
    connection = Connection.__new__(Connection)
    connection.socket = socket.socket(socket.AF_UNIX)
    connection.socket.settimeout(PATIENCE)
    connection.socket.connect(path)
    connection.buffer = b""
    return connection


def local(server, fake, folder):
    path = os.path.join(folder, "a socket")

    def refused():
        return subprocess.run([server, "--cuda-lib", fake, "--model", "x", "--listen", "unix:" + path], capture_output=True,
                              text=True, timeout=PATIENCE, check=False, env=clean_environment())

    with Worker(server, fake, "x", "--listen", "unix:" + path) as worker:  # beside --port 0
        check("TCP still", worker.post(BODY).status == 200)
        over_tcp = worker.post(BODY).body
        with local_connection(path) as connection:
            for _ in range(3):
                connection.send(post(BODY) + get("/health"))
                answer = connection.response()
                check("a decision", answer.status == 200 and answer.body == over_tcp, answer)
                check("pipelined", connection.response().json()["status"] == "ready")
            connection.send(b"nonsense\r\n\r\n")
            check("nonsense", connection.response().status == 400 and connection.closed())
        done = refused()
        check("a socket in use is not taken", done.returncode == 5 and path in done.stderr, done)
        with local_connection(path) as connection:
            connection.send(get("/health"))
            check("and stays in use", connection.response().status == 200)
        status, _ = worker.stop()
        check("stopped", status == 0 and not os.path.exists(path), status)
    with Worker(server, fake, "x", "--listen", "unix:" + path) as worker:
        worker.stop(signal.SIGKILL)
        check("killed, it leaves its file", stat.S_ISSOCK(os.stat(path).st_mode))
    with Worker(server, fake, "x", "--listen", "unix:" + path) as worker:
        with local_connection(path) as connection:
            connection.send(post(BODY))
            check("a file left behind is replaced", connection.response().status == 200)
        worker.stop()
    with Worker(server, fake, "x", "--listen", "unix:" + path) as worker:
        os.remove(path)
        with Worker(server, fake, "x", "--listen", "unix:" + path) as other:
            check("one whose file was removed ends well", worker.stop()[0] == 0)
            with local_connection(path) as connection:
                connection.send(get("/health"))
                check("and leaves the file of another", connection.response().status == 200)
            check("which goes with its own", other.stop()[0] == 0 and not os.path.exists(path))
    with Worker(server, fake, "x", "--listen", "unix:" + path, "--drain-delay", "3600") as worker:
        worker.process.send_signal(signal.SIGTERM)
        wait_for(lambda: worker.exchange(get("/readyz")).status == 503, "/readyz to say so")
        check("a second signal leaves no file", worker.stop()[0] == 128 + signal.SIGTERM and not os.path.exists(path))
    loading = subprocess.Popen([server, "--cuda-lib", fake, "--model", "x", "--listen", "unix:" + path],
                               env={**clean_environment(), "CUA_FAKE_LOAD_US": "60000000"}, stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(path), "the socket")
    loading.send_signal(signal.SIGTERM)
    check("nor does one while loading", loading.wait(PATIENCE) == 0 and not os.path.exists(path))
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        other.bind(path)
        other.listen(0)
        for waits in (first, second):  # as many as it has room for
            waits.setblocking(False)
            waits.connect_ex(path)
        done = refused()
        check("one whose owner has no room is not taken", done.returncode == 5 and stat.S_ISSOCK(os.stat(path).st_mode), done)
    os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write("mine")
    done = refused()
    with open(path, encoding="utf-8") as file:
        check("another's file is not touched", done.returncode == 5 and file.read() == "mine", done)


def several(server, fake):
    flags = ["--listen", "127.0.0.1:0"]
    if socket.has_ipv6:
        flags += ["--listen", "[::1]:0"]
    with Worker(server, fake, "x", *flags) as worker:
        ready = [line.rsplit(" ", 1)[1] for line in worker.log_text().splitlines() if " ready on " in line]
        check("each address is told", len(ready) == 1 + len(flags) // 2, ready)
        for address in ready:
            host, port = address.rsplit(":", 1)
            with Connection(host.strip("[]"), int(port)) as connection:
                connection.send(get("/health"))
                check(f"at {address}", connection.response().status == 200)


def document(server, fake, path):
    with open(path, encoding="utf-8") as file:
        written = json.load(file)
    with Worker(server, fake, "x", env={"CUA_S1_API_KEY": "key"}) as worker:
        response = worker.exchange(get("/openapi.json"))
        check("openapi.json", response.status == 200 and response.headers["content-type"] == "application/json"
              and response.json() == written, response)
        for target, item in written["paths"].items():
            methods = {method.upper() for method in item}
            for method in ("GET", "POST", "PUT", "DELETE"):
                response = worker.exchange(get(target, method, Content_Length="0", Authorization="Bearer key"))
                if method in methods:
                    check(f"{method} {target} is there", response.status not in (404, 405), response)
                    check("its status is in the document", str(response.status) in item[method.lower()]["responses"], response)
                else:
                    check(f"{method} {target} is not", response.status == 405
                          and {m.strip() for m in response.headers["allow"].split(",")} == methods, response)
            body_method = min(methods - {"HEAD"})  # the answer to HEAD would have a length and no body
            keyless = worker.exchange(get(target, body_method, Content_Length="0"))
            check(f"{target}: 401 is in the document where there is one",
                  (keyless.status == 401) <= ("401" in next(iter(item.values()))["responses"]), keyless)


def page(server, fake, path):
    """The page as it is served; ui_page.py opens it in a browser."""
    with open(path, "rb") as file:
        written = file.read()
    with Worker(server, fake, "x", env={"CUA_S1_API_KEY": "key"}) as worker:
        response = worker.exchange(get("/"))
        check("the page needs no key", response.status == 200 and response.body == written, response)
        check("its headers", response.headers["content-type"] == "text/html; charset=utf-8"
              and response.headers["cache-control"] == "no-cache" and response.headers["x-content-type-options"] == "nosniff"
              and response.headers["referrer-policy"] == "no-referrer", response)
        policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
        for tag in ("script", "style"):
            texts = re.findall(rb"<%b[^>]*>(.*?)</%b>" % (tag.encode(), tag.encode()), written, re.DOTALL)
            check(f"one {tag}", len(texts) == 1, len(texts))
            digest = base64.b64encode(hashlib.sha256(texts[0]).digest()).decode()
            check(f"the policy allows this {tag} alone", policy[tag + "-src"] == f"'sha256-{digest}'", policy)
        check("the policy", policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
              and "unsafe" not in response.headers["content-security-policy"], policy)
        with worker.connect() as connection:
            connection.send(get("/", "HEAD") + get("/?x=y"))
            head, after = connection.response(head=True), connection.response()
            check("HEAD", head.status == 200 and head.headers["content-length"] == str(len(written)), head)
            check("HEAD has no body, and a query is ignored", after.status == 200 and after.body == written)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            response = worker.exchange(get("/", method, Content_Length="0"))
            check(f"405 {method} /", response.status == 405 and response.headers["allow"] == "GET, HEAD"
                  and "detail" in response.json(), response)
    for flags, variable in ((("--no-ui",), None), ((), "1")):
        with Worker(server, fake, "x", *flags, env={"CUA_S1_NO_UI": variable} if variable else {}) as worker:
            for method in ("GET", "POST"):
                response = worker.exchange(get("/", method, Content_Length="0"))
                check("no page", response.status == 404 and "not found" in response.json()["detail"], response)
            check("the rest is there", worker.post(BODY).status == 200)


def told(server, fake):
    """What the head alone refuses is counted and logged; probes are not."""
    with Worker(server, fake, "x", env={"CUA_S1_API_KEY": "key"}) as worker:
        def counted():
            return worker.metrics()['cua_requests_total{code="4xx"}']

        before = counted()
        sent = [get("/nowhere", X_Request_Id="first"), get("/v1/systemone"), post(BODY), b"nonsense\r\n\r\n",
                post(b"", Content_Length="4194305", Authorization="Bearer key"),
                b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20000 + b"\r\n\r\n",
                post(BODY, Expect="much", Authorization="Bearer key")]
        for data in sent:
            check("refused", 400 <= worker.exchange(data).status < 500, data[:80])
        for target in ("/health", "/livez", "/readyz", "/metrics", "/openapi.json"):
            worker.exchange(get(target))
            worker.exchange(get(target, "PUT") if target != "/openapi.json" else get(target))
        check("all of them are counted", counted() - before == len(sent), counted() - before)
        lines = [line for line in worker.log_text().splitlines() if " refused " in line]
        check("a line each", len(lines) == len(sent) and "id=first status=404" in lines[0], lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--fake", required=True)
    parser.add_argument("--openapi", required=True)
    parser.add_argument("--page", required=True)
    options = parser.parse_args()
    server, fake = os.path.abspath(options.server), os.path.abspath(options.fake)
    cors(server, fake)
    with tempfile.TemporaryDirectory() as folder:
        local(server, fake, folder)
    several(server, fake)
    document(server, fake, options.openapi)
    page(server, fake, options.page)
    told(server, fake)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
