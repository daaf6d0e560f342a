#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the worker tells of itself, and who may ask: /metrics, ids, timings, log lines, models, keys.

usage: telemetry.py --server FILE --fake FILE
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

from worker import PATIENCE, Worker, clean_environment, get, post

failures = []
checks = 0
SECRET = "what is on the screen is nobody's business"


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def body(questions=1, model="cua-s1-4b-0.2"):
    question = {"type": "choice", "instructions": "Go", "criteria": {"yes": None, "no": None}}
    return {"model": model, "state": SECRET, "questions": {f"q{i}": question for i in range(questions)}}


def parse_metrics(text):
    """{series: value}, and {name: type}; fails on what Prometheus would not read."""
    values, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-z]+="(?:[^"\\\n]|\\.)*"(?:,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? '
                                 r'([-+.0-9eEInf]+)', line)
            check("a line of the text format", match is not None, line)
            check("no series twice", line.rsplit(" ", 1)[0] not in values, line)
            values[line.rsplit(" ", 1)[0]] = float(match.group(3))
            base = re.sub(r"_(bucket|sum|count)$", "", match.group(1))
            check("a type for it", match.group(1) in types or types.get(base) == "histogram", line)
    for name, kind in types.items():
        if kind != "histogram":
            continue
        buckets = [v for s, v in values.items() if s.startswith(name + "_bucket{")]
        check(f"{name} is cumulative", buckets == sorted(buckets) and buckets[-1] == values[name + "_count"], buckets)
    return values, types


def metrics(server, fake):
    with Worker(server, fake, "x", env={"CUA_FAKE_CALL_US": "2000"}) as worker:
        response = worker.exchange(get("/metrics"))
        check("/metrics", response.status == 200 and response.headers["content-type"].startswith("text/plain; version=0.0.4"),
              response)
        before, types = parse_metrics(response.body.decode())
        for name in ("cua_requests_total", "cua_questions_total", "cua_prompt_tokens_total", "cua_queue_questions",
                     "cua_queue_tokens", "cua_prepare_seconds", "cua_queue_seconds", "cua_forward_seconds",
                     "cua_request_seconds", "cua_batch_prompts", "cua_batch_tokens", "cua_forwards_total",
                     "cua_graph_captures_total", "cua_graph_replays_total", "cua_graph_fallbacks_total",
                     "cua_device_bytes", "cua_build_info", "cua_model_info", "cua_ready"):
            check(f"{name} is there from the start", name in types, sorted(types))
        for _ in range(3):
            check("answered", worker.post(body(2)).status == 200)
        check("refused", worker.post({"model": "label\"injection{}\n"}).status == 422)
        after, types_after = parse_metrics(worker.exchange(get("/metrics")).body.decode())
        check("the same series", set(after) == set(before) and types == types_after, set(after) ^ set(before))
        for series, more in (('cua_requests_total{code="2xx"}', 3), ('cua_requests_total{code="4xx"}', 1),
                             ('cua_requests_total{code="5xx"}', 0), ("cua_questions_total", 6),
                             ("cua_request_seconds_count", 4), ("cua_queue_seconds_count", 3),
                             ("cua_batch_prompts_sum", 6), ("cua_forward_seconds_count", 3)):
            check(series, after[series] - before[series] == more, before[series], after[series])
        check("times add up", after["cua_forward_seconds_sum"] >= 3 * 0.002, after["cua_forward_seconds_sum"])
        check("tokens", after["cua_prompt_tokens_total"] > 6 * 100, after["cua_prompt_tokens_total"])
        check("wrong method", worker.exchange(get("/metrics", "POST")).status == 405)


def under_load(server, fake):
    """Health and metrics answer while every pass takes long and the queue is full."""
    with Worker(server, fake, "x", "--max-queue-requests", "2", "--batch", "off",
                env={"CUA_FAKE_CALL_US": "3000000"}) as worker:
        threads = [threading.Thread(target=worker.post, args=(body(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        slowest = 0
        for i in range(100):
            path = ("/health", "/livez", "/readyz", "/metrics")[i % 4]
            began = time.monotonic()
            status = worker.exchange(get(path)).status
            slowest = max(slowest, time.monotonic() - began)
            check(f"{path} under load", status == 200, status)
        check("none waited for a pass", slowest < 2, slowest)
        for thread in threads:
            thread.join(PATIENCE)


def identities(server, fake):
    with Worker(server, fake, "x") as worker:
        for wanted in ("abc", "A-b_c.1", "x" * 128):
            for data in (post(json.dumps(body()).encode(), X_Request_Id=wanted), get("/health", X_Request_Id=wanted)):
                headers = worker.exchange(data).headers
                check("a sane id is echoed", headers["x-request-id"] == headers["x-typesafe-request-id"] == wanted, headers)
        seen = set()
        for wanted in (None, "", "x" * 129, "a b", "a\tb", "caf\u00e9", "<script>", "a;b", "{}"):
            data = post(json.dumps(body()).encode(), X_Request_Id=wanted) if wanted is None else post(
                json.dumps(body()).encode(), X_Request_Id=wanted.encode().decode("latin-1"))
            headers = worker.exchange(data).headers
            check("another is made", re.fullmatch("[0-9a-f]{32}", headers["x-request-id"]) is not None
                  and headers["x-request-id"] == headers["x-typesafe-request-id"], wanted, headers)
            seen.add(headers["x-request-id"])
        check("each its own", len(seen) == 9, len(seen))
        timing = worker.post(body()).headers["server-timing"]
        check("Server-Timing", re.fullmatch(r"tok;dur=[\d.]+, queue;dur=[\d.]+, infer;dur=[\d.]+", timing) is not None, timing)
        check("errors carry ids too", "x-request-id" in worker.exchange(get("/nowhere")).headers)


def lines(server, fake):
    for form in ("text", "json"):
        with Worker(server, fake, "x", "--log-format", form, "--log-level", "debug") as worker:
            for _ in range(2):
                worker.exchange(post(json.dumps(body(3)).encode(), X_Request_Id="my-id"))
            worker.post({"model": "x"})
            worker.stop()
            text = worker.log_text()
            check(f"{form}: nothing of the state", SECRET not in text and "nobody" not in text)
            decisions = [line for line in text.splitlines() if "decision" in line]
            check(f"{form}: one line a request", len(decisions) == 3, decisions)
            if form == "json":
                parsed = [json.loads(line) for line in text.splitlines()]
                check("every line is JSON", all(p["level"] and p["time"] and "message" in p for p in parsed))
                one = [p for p in parsed if p["message"] == "decision"][0]
                check("its fields", one["id"] == "my-id" and one["status"] == "200" and one["questions"] == "3"
                      and float(one["total_ms"]) > 0 and int(one["tokens"]) > 0, one)
            else:
                check("its fields, as text", "id=my-id status=200 questions=3" in decisions[0], decisions[0])
    with Worker(server, fake, "x", "--log-level", "error") as worker:
        worker.post(body())
        worker.stop()
        check("--log-level error is quiet", worker.log_text() == "", worker.log_text())


def models(server, fake):
    with Worker(server, fake, "x", "--accept-model", "gpt-x,my/model") as worker:
        listed = worker.exchange(get("/v1/models")).json()
        names = ["cua-s1-4b-0.2", "gpt-x", "my/model"]
        check("both shapes", [m["name"] for m in listed["models"]] == [m["id"] for m in listed["data"]] == names, listed)
        check("as their clients expect", listed["object"] == "list" and all(m["object"] == "model" for m in listed["data"])
              and all(set(m) == {"name", "description", "release_date"} for m in listed["models"]), listed)
        for name, status in (("gpt-x", 200), ("my/model", 200), ("cua-s1-4b-0.2", 200), ("gpt", 422), ("", 422)):
            check(f"model {name!r}", worker.post(body(model=name)).status == status)
    with Worker(server, fake, "x") as worker:
        check("none by default", worker.post(body(model="gpt-x")).status == 422)


def keys(server, fake, folder):
    path = os.path.join(folder, "keys")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# keys\nfirst-key\n\nsecond key\r\n")
    data = json.dumps(body()).encode()
    with Worker(server, fake, "x", "--api-key-file", path, env={"CUA_S1_API_KEY": "third"}) as worker:
        for key, status in (("Bearer first-key", 200), ("bearer second key", 200), ("BEARER third", 200),
                            ("Bearer first-ke", 401), ("Bearer first-keyy", 401), ("Bearer ", 401), ("Bearer", 401),
                            ("first-key", 401), ("Basic first-key", 401), ("Bearer # keys", 401), (None, 401)):
            response = worker.exchange(post(data, Authorization=key))
            check(f"key {key!r}", response.status == status, response)
            if status == 401:
                check("401 says how", response.headers.get("www-authenticate") == "Bearer"
                      and isinstance(response.json()["detail"], str) and "first" not in response.body.decode(), response)
        check("models need one too", worker.exchange(get("/v1/models")).status == 401)
        for open_path in ("/health", "/livez", "/readyz", "/metrics"):
            check(f"{open_path} is open", worker.exchange(get(open_path)).status == 200)
        check("no key in the log", "first-key" not in worker.log_text() and "third" not in worker.log_text())
    with Worker(server, fake, "x", "--api-key-file", path, "--protect-metrics") as worker:
        check("--protect-metrics", worker.exchange(get("/metrics")).status == 401
              and worker.exchange(get("/metrics", Authorization="Bearer first-key")).status == 200
              and worker.exchange(get("/health")).status == 200)
    for name, content in (("empty", ""), ("comment", "# nothing\n")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        done = subprocess.run([server, "--cuda-lib", fake, "--model", "x", "--api-key-file", path], capture_output=True,
                              text=True, timeout=PATIENCE, check=False, env=clean_environment())
        check(f"a key file that is {name} is refused", done.returncode == 2 and "holds no key" in done.stderr, done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--fake", required=True)
    options = parser.parse_args()
    server, fake = os.path.abspath(options.server), os.path.abspath(options.fake)
    metrics(server, fake)
    under_load(server, fake)
    identities(server, fake)
    lines(server, fake)
    models(server, fake)
    with tempfile.TemporaryDirectory() as folder:
        keys(server, fake, folder)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
