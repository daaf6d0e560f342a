#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP contract over a real socket, line by line.

usage: contract.py --server FILE --lib FILE --model DIR --requests FILE [--fake]

--fake: the library is the tests' own, whose answers are predicted here; else answers are checked for
their form.
"""
import argparse
import gzip
import json
import math
import struct
import sys
import threading
import time
import zlib

from worker import MODEL_ID, Worker, get, post

MODEL = "cua-s1-4b-0.2"
SIX = {"string": "x", "number": 1, "boolean": True, "null": None, "array": ["x"], "object": {"a": 1}}
failures = []
checks = 0


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def request(**changes):
    body = {"model": MODEL, "state": "button OK",
            "questions": {"q": {"type": "choice", "instructions": "Press OK.",
                                "criteria": {"ok": "Press it", "no": "Wait"}}}}
    body.update(changes)
    return {k: v for k, v in body.items() if v is not DROP}


def question(**changes):
    body = dict(request()["questions"]["q"])
    body.update(changes)
    return {"q": {k: v for k, v in body.items() if v is not DROP}}


DROP = object()
ZSTD_FRAME = bytes.fromhex("28b52ffd20021100007b7d")  # of {}


def is_error(response, status):
    """An error of the contract's form: one string, JSON, UTF-8."""
    if response is None or response.status != status:
        return False
    if response.headers.get("content-type") != "application/json":
        return False
    body = response.json()
    return list(body) == ["detail"] and isinstance(body["detail"], str) and body["detail"] != ""


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def check_answer(name, response, body, fake, model_id):
    if response is None or response.status != 200:
        check(name, False, response)
        return
    check(name + ": content type", response.headers.get("content-type") == "application/json", response)
    answer = response.json()
    check(name + ": keys", list(answer) == ["model", "answers", "usage"], response)
    check(name + ": model", answer["model"] == model_id, answer["model"])
    check(name + ": questions", list(answer["answers"]) == list(body["questions"]), response)
    check(name + ": usage", list(answer["usage"]) == ["input_tokens", "output_tokens"]
          and answer["usage"]["output_tokens"] == 0 and answer["usage"]["input_tokens"] > 0, response)
    for key, value in answer["answers"].items():
        criteria = body["questions"][key]["criteria"]
        check(name + ": answer keys", list(value) == ["type", "choice", "probabilities", "confidence"],
              response)
        p = value["probabilities"]
        check(name + ": options", list(p) == list(criteria), response)
        check(name + ": type", value["type"] == "choice")
        check(name + ": sum", abs(sum(p.values()) - 1) < 1e-5, p)
        check(name + ": fp32", all(f32(x) == x for x in p.values()), p)
        check(name + ": choice", p[value["choice"]] == max(p.values()), response)
        entropy = -sum(x * math.log(x) for x in p.values() if x > 0)
        wanted = 1.0 if len(p) == 1 else max(0.0, 1 - entropy / math.log(len(p)))
        check(name + ": confidence", abs(value["confidence"] - wanted) < 1e-12, response)
        if fake:
            top = f32(math.exp(2) / (math.exp(2) + len(p) - 1))
            check(name + ": predicted", max(p.values()) == (1.0 if len(p) == 1 else top), p)


def bad_json(worker):
    cases = {
        "empty": b"", "blank": b" ", "trailing comma": b'{"a":1,}', "single quotes": b"{'a':1}",
        "two values": b"{} {}", "text after": b"{}x", "raw NUL": b"\0", "NUL after": b"{}\0",
        "NaN": b'{"a":NaN}', "Infinity": b'{"a":Infinity}', "-Infinity": b'{"a":-Infinity}',
        "1e400": b'{"a":1e400}', "-1e400": b'{"a":[-1e400]}', "4301 digits": b'{"a":' + b"1" * 4301 + b"}",
        "01": b'{"a":01}', "+1": b'{"a":+1}', ".5": b'{"a":.5}', "1.": b'{"a":1.}', "1e": b'{"a":1e}',
        "-": b'{"a":-}', "0x10": b'{"a":0x10}',
        "lone surrogate": b'{"a":"\\ud800"}', "lone low surrogate": b'{"a":"\\udc00"}',
        "lone surrogate in a key": b'{"\\ud83d":1}', "half a pair": b'{"a":"\\ud83dx"}',
        "UTF-16": '{"a":1}'.encode("utf-16"), "UTF-16-LE": '{"a":1}'.encode("utf-16-le"),
        "UTF-8 mark": b"\xef\xbb\xbf{}", "raw control": b'{"a":"\x01"}', "raw newline": b'{"a":"\n"}',
        "\\x": b'{"a":"\\x41"}', "form feed": b"\x0c{}", "no-break space": b"\xc2\xa0{}",
        "same key": b'{"x":1,"x":2}', "same key escaped": b'{"x":1,"\\u0078":2}',
        "same key deep": b'{"a":[{"b":{"k":1,"k":1}}]}', "128 levels": b'{"a":' + b"[" * 127 + b"]" * 127 + b"}",
        "100,000 brackets": b"[" * 100000, "array": b"[1,2]", "string": b'"x"', "null": b"null", "number": b"3",
        "boolean": b"true", "comment": b"{}/**/", "cut": b'{"a":', "unquoted key": b"{a:1}",
    }
    for name, body in cases.items():
        response = worker.post(body)
        check("400 " + name, is_error(response, 400), response)
    check("400 names the key", '"k"' in worker.post(cases["same key deep"]).json()["detail"])
    check("400 names the escaped key", '"x"' in worker.post(cases["same key escaped"]).json()["detail"])
    # All of this is found in the whole body before any field is looked at.
    for name in ("trailing comma", "same key deep", "NaN", "1e400", "lone surrogate"):
        body = b'{"model":"wrong","deep":' + cases[name] + b"}"
        check("400 before 422 " + name, is_error(worker.post(body), 400))


def accepted_json(worker, check_good):
    whole = json.dumps(request())
    for name, value in {
        "underflow": "1e-400", "huge integer": "1" * 4300, "beyond 64 bits": "123456789012345678901234567890",
        "pair": '"\\ud83d\\ude00"', "0x7f": '"\x7f"', "127 levels": "[" * 126 + "]" * 126,
        "odd numbers": "[-0, -0.0, 5e-324, 1.10, 1E5, 1e+16, 9007199254740993.0]",
        "escapes": '"\\/\\b\\f\\n\\r\\t\\"\\\\"', "deep objects": '{"a":' * 120 + "1" + "}" * 120,
    }.items():
        body = whole[:-1] + ',"more":' + value + "}"
        check_good("accepts " + name, worker.post(body.encode()), request())
    spaced = b" \t\r\n" + whole.encode() + b"\n\t \r"
    check_good("accepts white space", worker.post(spaced), request())


def fields(worker, check_good):
    def refused(name, body, status=422, *needles):
        response = worker.post(body)
        ok = is_error(response, status) and all(n in response.json()["detail"] for n in needles)
        check(f"{status} {name}", ok, response)

    for name, value in {**SIX, "missing": DROP, "near": MODEL + " ", "case": MODEL.upper()}.items():
        refused(f"model {name}", request(model=value), 422, "model")
    for name, value in {"number": 1, "real": 0.5, "boolean": False, "null": None, "missing": DROP, "empty": "",
                        "empty array": [], "empty object": {}}.items():
        refused(f"state {name}", request(state=value), 422, "state")
    for name, value in {"blank": " ", "object": {"a": None}, "array": [None], "nested empty": [""],
                        "unicode": "日本語 😀 e\u0301\u0000", "string": "x"}.items():
        check_good(f"state {name}", worker.post(request(state=value)), request(state=value))
    for name, value in {**SIX, "missing": DROP, "empty": {}}.items():
        if name != "object":
            refused(f"questions {name}", request(questions=value), 422, "questions")
    for name, value in SIX.items():
        refused(f"question {name}", request(questions={"the name": value}), 422, "the name")
    for name, value in {**SIX, "missing": DROP}.items():
        refused(f"type {name}", request(questions=question(type=value)), 422, "unknown type")
    for kind in ("score", "noul"):
        refused(f"type {kind}", request(questions=question(type=kind)), 422, "not supported")
        two = {**question(), "second": {"type": kind}}
        refused(f"type {kind} beside a good one", request(questions=two), 422, "not supported", "second")
    for name, value in {"missing": DROP, "number": 1, "boolean": True}.items():
        refused(f"instructions {name}", request(questions=question(instructions=value)), 422, "instructions")
    for name, value in {"null": None, "empty": "", "string": "x", "array": ["x"], "object": {"a": 1},
                        "empty array": [], "empty object": {}}.items():
        body = request(questions=question(instructions=value))
        check_good(f"instructions {name}", worker.post(body), body)
    for name, value in {**SIX, "missing": DROP, "empty": {}}.items():
        if name != "object":
            refused(f"criteria {name}", request(questions=question(criteria=value)), 422, "criteria")
    for name, value in SIX.items():
        body = request(questions=question(criteria={"an option": value}))
        if name in ("number", "boolean"):
            refused(f"option {name}", body, 422, "an option")
        else:
            check_good(f"option {name}", worker.post(body), body)
    for n in (1, 2, 25, 26):
        body = request(questions=question(criteria={str(i): f"option {i}" for i in range(n)}))
        check_good(f"{n} options", worker.post(body), body)
    refused("27 options", request(questions=question(criteria={str(i): "x" for i in range(27)})), 422, "27")
    body = request(questions=question(criteria={"": "", "10": None, "9": [], "é": {}}))
    check_good("odd option keys", worker.post(body), body)
    many = {f"q{i}": question()["q"] for i in range(64)}
    check_good("64 questions", worker.post(request(questions=many)), request(questions=many))
    refused("65 questions", request(questions={**many, "more": 1}), 413, "65")
    names = {"": question()["q"], "2": question()["q"], "1": question()["q"], "ключ": question()["q"]}
    check_good("odd question names", worker.post(request(questions=names)), request(questions=names))
    extra = request(extra={"deep": [1, {"x": None}]})
    extra["questions"]["q"]["other"] = 5
    check_good("unknown keys", worker.post(extra), extra)

    # The order of checks: what comes first is what is told.
    refused("model before state", {"model": "no"}, 422, "model")
    refused("state before questions", {"model": MODEL, "state": 1}, 422, "state")
    refused("first question first", request(questions={"a": 1, "b": {"type": "noul"}}), 422, '"a"')
    refused("type before instructions", request(questions={"a": {"type": "x"}}), 422, "type")
    refused("instructions before criteria", request(questions={"a": {"type": "choice"}}), 422, "instructions")
    refused("long names are cut", request(questions={"n" * 100000: 1}), 422)
    check("long names are cut", len(worker.post(request(questions={"n" * 100000: 1})).body) < 1000)

    # Too many tokens: the question, its count and the limit are named; nothing else is answered.
    long = request(state="many words " * 20000, questions={"long one": question()["q"]})
    refused("too many tokens", long, 413, "long one", "16384")


def encodings(worker, check_good):
    text = json.dumps(request(state="按钮：确定，取消"), ensure_ascii=False)
    for name in ("gbk", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"):
        check(f"400 {name} body", is_error(worker.post(text.encode(name)), 400))
    template = json.dumps({"model": "@0", "state": "@1", "@2": 0, "questions": {"@3": {
        "type": "@4", "instructions": "@5", "criteria": {"@6": "@7"}}}})
    for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\x80"):
        for field in range(8):
            body = template.encode().replace(f"@{field}".encode(), bad)
            response = worker.post(body)
            check(f"400 {bad!r} in field {field}", is_error(response, 400), response)
    # A body that its sender has compressed is no JSON, and the answer says why. The header alone is not looked at.
    plain = json.dumps(request()).encode()
    for coding, body in {"gzip": gzip.compress(plain), "deflate": zlib.compress(plain), "zstd": ZSTD_FRAME}.items():
        response = worker.post(body, Content_Encoding=coding)
        check(f"400 {coding}", is_error(response, 400) and f'Content-Encoding "{coding}"' in response.json()["detail"]
              and "uncompressed" in response.json()["detail"], response)
        check_good(f"plain JSON that is said to be {coding}", worker.post(plain, Content_Encoding=coding), request())
        response = worker.post(request(model="no"), Content_Encoding=coding)
        check(f"422 is no matter of {coding}", is_error(response, 422) and coding not in response.json()["detail"], response)
    for coding in (None, "", "identity", "Identity"):
        response = worker.post(b"{", Content_Encoding=coding)
        check(f"400, Content-Encoding {coding!r}", is_error(response, 400) and "Encoding" not in response.json()["detail"], response)
    response = worker.post(b"", Content_Encoding="\u00ff" * 1000)
    check("400, an odd Content-Encoding is cut", is_error(response, 400) and len(response.body) < 1000, response)


def routes(worker, model_id):
    health = worker.exchange(get("/health"))
    check("health", health.status == 200 and list(health.json())[:2] == ["status", "model"]
          and health.json()["status"] == "ready" and health.json()["model"] == model_id, health)
    check("health with a query", worker.exchange(get("/health?x=1")).status == 200)
    check("a query is ignored", worker.exchange(post(json.dumps(request()).encode(), "/v1/systemone?a=/b")).status == 200)
    check("absolute form", worker.exchange(get("http://test/health")).status == 200)
    body = json.dumps(request()).encode()
    for content_type in ("text/plain", "application/xml", "", "multipart/form-data; boundary=x"):
        check(f"content type {content_type!r}", worker.post(body, Content_Type=content_type).status == 200)
    for target in ("/v1", "/v1/systemone/", "/healthz", "/v1/SYSTEMONE", "/v1/systemone%20", "//health", "*"):
        check(f"404 {target}", is_error(worker.exchange(get(target)), 404))
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"):
        response = worker.exchange(get("/health", method))
        check(f"405 {method} /health", is_error(response, 405) and response.headers.get("allow") == "GET", response)
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH"):
        response = worker.exchange(get("/v1/systemone", method))
        check(f"405 {method}", is_error(response, 405) and response.headers.get("allow") == "POST", response)
    for target, status, allow in (("/health", 405, "GET"), ("/v1/systemone", 405, "POST"), ("/x", 404, None)):
        with worker.connect() as connection:
            connection.send(get(target, "HEAD") + get("/health"))
            response = connection.response(head=True)
            check(f"HEAD {target}", response.status == status and response.headers.get("allow") == allow, response)
            after = connection.response()
            check(f"HEAD {target} has no body", after is not None and after.status == 200, after)
    with worker.connect() as connection:
        connection.send(get("/health", "HEAD", Content_Length="4194305"))
        response = connection.response(head=True)
        check("nor does what HTTP itself refuses", response.status == 413 and connection.closed() and not connection.buffer, response)


def sizes(worker, check_good):
    limit = 4 * 1024 * 1024
    whole = json.dumps(request())[:-1].encode() + b',"pad":"'
    exact = whole + b"x" * (limit - len(whole) - 2) + b'"}'
    assert len(exact) == limit
    one_more = whole + b"x" * (limit - len(whole) - 1) + b'"}'

    def chunked(body, size=65536):
        parts = [b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size]) for i in range(0, len(body), size)]
        return (b"POST /v1/systemone HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
                + b"".join(parts) + b"0\r\n\r\n")

    check_good("exactly 4 MiB", worker.post(exact), request())
    check_good("exactly 4 MiB, chunked", worker.exchange(chunked(exact)), request())
    check("413 one byte more", is_error(worker.post(one_more), 413))
    check("413 one byte more, chunked", is_error(worker.exchange(chunked(one_more)), 413))
    check("413 before any JSON", is_error(worker.post(b"x" * (limit + 1)), 413))
    with worker.connect() as connection:  # announced, never sent
        connection.send(b"POST /v1/systemone HTTP/1.1\r\nHost: t\r\nContent-Length: 4194305\r\n\r\n")
        check("413 by announcement alone", is_error(connection.response(), 413))
    with worker.connect() as connection:
        connection.send(b"POST /v1/systemone HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999\r\n\r\n")
        response = connection.response()
        check("a length beyond 64 bits", is_error(response, 400) or is_error(response, 413), response)
    check_good("chunks of one byte", worker.exchange(chunked(json.dumps(request()).encode(), 1)), request())
    with_trailer = chunked(json.dumps(request()).encode())[:-2] + b"Trailer: x\r\n\r\n"
    check_good("a trailer", worker.exchange(with_trailer), request())
    extension = b"5;name=value\r\n"
    body = json.dumps(request()).encode()
    data = (b"POST /v1/systemone HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n" + extension
            + body[:5] + b"\r\n%x\r\n" % (len(body) - 5) + body[5:] + b"\r\n0\r\n\r\n")
    check_good("a chunk extension", worker.exchange(data), request())
    # Refused at once, in whatever pieces it comes and though nothing follows.
    for name, broken in {"size": b"zz", "negative": b"-1\r\n", "no newline": b"5hello", "overflow": b"f" * 20 + b"\r\n",
                         "0x": b"0x5\r\n", "decimal point": b"5.0\r\n", "plus": b"+5\r\n", "space before": b" 5\r\n",
                         "underscore": b"1_0\r\n", "empty size": b";a=b\r\n", "empty line": b"\r\n\r\n",
                         "more than its size": b"5\r\nhelloX", "less than its size": b"5\r\nhel\r\n0\r\n\r\n",
                         "line feed after data": b"5\r\nhello\n", "return after data": b"5\r\nhello\rX",
                         "size after data": b"5\r\nhello5\r\n", "last chunk with a letter": b"5\r\nhello\r\n0g\r\n",
                         "a later 0x": b"5\r\nhello\r\n0x\r\n"}.items():
        for step in (1, 3, len(broken)):
            with worker.connect() as connection:
                connection.send(b"POST /v1/systemone HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
                for i in range(0, len(broken), step):
                    connection.send(broken[i:i + step])
                response = connection.response()
                check(f"chunk error: {name}", is_error(response, 400) or is_error(response, 413), response)
                check(f"chunk error closes: {name}", connection.closed())


def framing(worker, check_good):
    body = json.dumps(request()).encode()
    message = post(body)
    with worker.connect() as connection:
        for i in range(len(message)):
            connection.send(message[i:i + 1])
        check_good("one byte per segment", connection.response(), request())
    with worker.connect() as connection:
        first, second = request(), request(state="other", questions={"second": question()["q"]})
        connection.send(post(json.dumps(first).encode()) + post(json.dumps(second).encode()) + get("/health"))
        check_good("pipelined, first", connection.response(), first)
        check_good("pipelined, second", connection.response(), second)
        check("pipelined, third", connection.response().status == 200)
    with worker.connect() as connection:
        for i in range(20):
            connection.send(post(b"nonsense") if i % 3 == 1 else message)
            response = connection.response()
            check("keep-alive", response.status == (400 if i % 3 == 1 else 200), response)
    with worker.connect() as connection:
        connection.send(post(body, Connection="close"))
        check("Connection: close", connection.response().headers.get("connection") == "close")
        check("Connection: close closes", connection.closed())
    with worker.connect() as connection:
        connection.send(b"POST /v1/systemone HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        check("HTTP/1.0", connection.response().status == 200)
        check("HTTP/1.0 closes", connection.closed())
    with worker.connect() as connection:
        for _ in range(2):
            connection.send(b"POST /v1/systemone HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            response = connection.response()
            check("HTTP/1.0 keep-alive", response.status == 200 and response.headers.get("connection") == "keep-alive", response)

    head = "POST /v1/systemone HTTP/1.1\r\nHost: t\r\n"
    for name, data in {
        "length and chunked": head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunked and length": head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        "two lengths": head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "length not a number": head + "Content-Length: two\r\n\r\n{}",
        "negative length": head + "Content-Length: -2\r\n\r\n{}",
        "space before colon": head + "Content-Length : 2\r\n\r\n{}",
        "no Host": "POST /v1/systemone HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        "two Hosts": head + "Host: u\r\nContent-Length: 2\r\n\r\n{}",
        "a coding beside chunked": head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "a coding in place of chunked": head + "Transfer-Encoding: gzip\r\n\r\n{}",
        "no coding": head + "Transfer-Encoding:\r\n\r\n0\r\n\r\n",
        "no coding beside a length": head + "Transfer-Encoding: \r\nContent-Length: 2\r\n\r\n{}",
        "chunked twice": head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunked, chunked": head + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "chunked in HTTP/1.0": head.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "nonsense": "nonsense\r\n\r\n", "HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        "bare line feed": "GET /health HTTP/1.1\nHost: t\n\n", "NUL in header": head + "X: a\0b\r\n\r\n",
    }.items():
        with worker.connect() as connection:
            connection.send(data.encode("latin-1"))
            response = connection.response()
            check(f"400 {name}", is_error(response, 400), response)
            check(f"{name} closes", connection.closed())
    with worker.connect() as connection:
        connection.send(head.encode() + b"X: " + b"y" * 100000 + b"\r\n\r\n")
        check("431", is_error(connection.response(), 431))
    # The limit is of the whole header, however it comes.
    start = b"GET /health HTTP/1.1\r\nHost: t\r\n"
    for size in (16384, 16385, 20000, 40000):
        for line in (1000, 12000, size):
            rest = size - len(start) - 2
            lines = []
            while rest > 0:
                length = rest if rest < line + 6 else line
                lines.append(b"X: " + b"y" * (length - 5) + b"\r\n")
                rest -= length
            assert len(start + b"".join(lines)) + 2 == size
            for pieces in ([start + b"".join(lines) + b"\r\n"], [start, *lines, b"\r\n"]):
                with worker.connect() as connection:
                    for piece in pieces:
                        connection.send(piece)
                        if len(pieces) > 1:
                            time.sleep(0.001)  # so that it is read apart
                    response = connection.response()
                    wanted = 200 if size <= 16384 else 431
                    check(f"a header of {size} bytes, lines of {line}, {len(pieces)} pieces: {wanted}",
                          response.status == wanted, response)
    with worker.connect() as connection:  # lines without end
        line = b"X: " + b"y" * 1000 + b"\r\n"
        connection.send(start)
        for _ in range(17):
            connection.send(line)
            time.sleep(0.001)
        check("431 before a header's end", is_error(connection.response(), 431))
    # Around the body too nothing is kept without limit, and nothing that is sent ends the worker.
    body = json.dumps(request()).encode()
    chunked = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
    whole = chunked + b"%x\r\n%s\r\n" % (len(body), body)
    for name, data in {
        "a trailer of 70,000 bytes": whole + b"0\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
        "a trailer of 200,000 bytes": whole + b"0\r\nX: " + b"a" * 200000 + b"\r\n\r\n",
        "trailers without end": whole + b"0\r\n" + b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 200000,
        "a chunk extension without end": chunked + b"5;" + b"e" * (8 << 20),
        "a chunk size without end": chunked + b"0" * (1 << 20),
    }.items():
        with worker.connect() as connection:
            connection.send(data)
            try:
                response = connection.response()
            except ConnectionResetError:
                response = None  # refused while it was still sending
            check(name, response is None or response.status in (400, 431), response)
        check(f"{name}: the worker is well", worker.exchange(get("/health")).status == 200)
    with worker.connect() as connection:
        connection.send(whole + b"0\r\nX: " + b"a" * 8000 + b"\r\n\r\n")
        check_good("a trailer of 8,000 bytes", connection.response(), request())
    with worker.connect() as connection:
        connection.send(get("/health", Upgrade="h2c", Connection="Upgrade, HTTP2-Settings", HTTP2_Settings="AAMAAABkAAQ"))
        check("Upgrade: h2c is ignored", connection.response().status == 200)


def expectations(worker, check_good):
    body = json.dumps(request()).encode()
    with worker.connect() as connection:
        connection.send(post(b"", Content_Length=str(len(body)), Expect="100-continue"))
        check("100 Continue", connection.response().status == 100)
        connection.send(body)
        check_good("after 100", connection.response(), request())
        connection.send(post(b"", Content_Length=None, Transfer_Encoding="chunked", Expect="100-Continue"))
        check("100 Continue, chunked", connection.response().status == 100)
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        check_good("after 100, chunked", connection.response(), request())
    check_good("expectation with the body at once", worker.post(body, Expect="100-continue"), request())
    for name, data, status in (
            ("too large", post(b"", Content_Length="4194305", Expect="100-continue"), 413),
            ("wrong method", get("/v1/systemone", "PUT", Content_Length="5", Expect="100-continue"), 405),
            ("wrong path", post(b"", "/nowhere", Content_Length="5", Expect="100-continue"), 404),
            ("unknown", post(b"", Content_Length="5", Expect="200-ok"), 417)):
        with worker.connect() as connection:
            connection.send(data)
            response = connection.response()
            check(f"expectation refused: {name}", is_error(response, status), response)


def rude_clients(worker, check_good):
    body = json.dumps(request()).encode()
    message = post(body)
    for cut in (1, 20, len(message) - len(body), len(message) - 1):
        with worker.connect() as connection:
            connection.send(message[:cut])
    for _ in range(20):
        with worker.connect() as connection:
            connection.send(message)  # and gone before the answer
    with worker.connect() as slow:  # a slow reader holds nobody up
        slow.send(message * 50)
        check_good("beside a slow reader", worker.post(body), request())
        for _ in range(50):
            check_good("slow reader", slow.response(), request())
    errors = []

    def client(i):
        mine = request(state=f"state {i}", questions={f"question {i}": question()["q"]})
        try:
            with worker.connect() as connection:
                for _ in range(10):
                    connection.send(post(json.dumps(mine).encode()))
                    response = connection.response()
                    if response.status != 200 or list(response.json()["answers"]) != [f"question {i}"]:
                        errors.append(response)
        except Exception as error:  # noqa: BLE001, told below
            errors.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("32 clients", not errors, errors[:3])


def longest_prompt(worker, check_good):
    """Exactly as many tokens as the engine takes, and one more: every digit is a token."""
    one = worker.post(request(state="1")).json()["usage"]["input_tokens"]
    body = request(state="1" * (16384 - one + 1))
    response = worker.post(body)
    check_good("16,384 tokens", response, body)
    check("16,384 tokens are counted", response.json()["usage"]["input_tokens"] == 16384, response)
    response = worker.post(request(state="1" * (16384 - one + 2)))
    check("16,385 tokens", is_error(response, 413) and "16385" in response.json()["detail"], response)


def samples(worker, path, fake, check_good):
    count = 0
    for line in open(path, encoding="utf-8"):
        sample = json.loads(line)
        response = worker.post(sample["request"])
        check_good(sample["name"], response, sample["request"])
        if not fake and response.status == 200:
            tokens = response.json()["usage"]["input_tokens"]
            check(f"{sample['name']}: tokens", tokens == sum(sample["prompt_tokens"].values()), tokens)
        count += 1
    check("samples", count >= 71, count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-id", default=MODEL_ID)
    parser.add_argument("--requests", required=True)
    parser.add_argument("--fake", action="store_true")
    options = parser.parse_args()
    with Worker(options.server, options.lib, options.model) as worker:
        def check_good(name, response, body):
            check_answer(name, response, body, options.fake, options.model_id)

        check_good("plain", worker.post(request()), request())
        routes(worker, options.model_id)
        bad_json(worker)
        accepted_json(worker, check_good)
        fields(worker, check_good)
        encodings(worker, check_good)
        sizes(worker, check_good)
        framing(worker, check_good)
        expectations(worker, check_good)
        rude_clients(worker, check_good)
        samples(worker, options.requests, options.fake, check_good)
        if not options.fake:
            longest_prompt(worker, check_good)
        check_good("still there", worker.post(request()), request())
        status, rest = worker.stop()
        check("exit status", status == 0, status, worker.log_text()[-2000:])
        check("stdout has one line", rest == b"", rest)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
