#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that others wrote against the worker: answers, refusals, many at once, a full queue, given up, keys.

usage: real_clients.py --server FILE --lib FILE --model DIR --fake FILE --requests FILE --docs FILE [--only NAME]

Run by client_venv.py. --docs is the page whose section `Clients` shows each of them: its Python programs are run too.
"""
import argparse
import asyncio
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from held_worker import QUESTION, Held
from sample_requests import samples, several_questions
from worker import Worker, wait_for

import client_adapters
from client_adapters import ADAPTERS, PATIENCE, sdk

SCORE = {"type": "score", "instructions": "How bad?", "criteria": ["fine", "bad"]}
NOUL = {"type": "noul", "instructions": "Is it bad?"}
TOGETHER = 32
QUEUE = 4  # places, where it is to be full

failures = []
checks = 0


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def url(worker):
    return f"http://127.0.0.1:{worker.port}"


class Client:
    """An adapter whose questions are asked in the background, whichever kind it is."""

    def __init__(self, adapter, worker, **options):
        self.asynchronous = adapter.asynchronous
        if self.asynchronous:
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever)
            self.thread.start()
            self.adapter = self.call(lambda: adapter(url(worker), **options))
        else:
            self.pool = concurrent.futures.ThreadPoolExecutor(TOGETHER)
            self.adapter = adapter(url(worker), **options)

    def call(self, function):
        async def wrapped():
            return function()
        return asyncio.run_coroutine_threadsafe(wrapped(), self.loop).result(PATIENCE)

    def begin(self, state, questions, **options):
        """The future of an answer."""
        if self.asynchronous:
            return asyncio.run_coroutine_threadsafe(self.adapter.ask(state, questions, **options), self.loop)
        return self.pool.submit(self.adapter.ask, state, questions, **options)

    def ask(self, state, questions, **options):
        return self.begin(state, questions, **options).result(2 * PATIENCE)

    def failure(self, state, questions, **options):
        """What it raises, or else what it gives."""
        try:
            return self.ask(state, questions, **options)
        except Exception as error:
            return error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.asynchronous:
            asyncio.run_coroutine_threadsafe(self.adapter.close(), self.loop).result(PATIENCE)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(PATIENCE)
            self.loop.close()
        else:
            self.adapter.close()
            self.pool.shutdown()


class Expected:
    """What each question is answered alone, asked over a plain socket of a worker that scores one prompt a pass."""

    def __init__(self, worker):
        self.worker = worker
        self.known = {}

    def answer(self, state, question):
        key = json.dumps([state, question])
        if key not in self.known:
            response = self.worker.post({"model": client_adapters.MODEL, "state": state, "questions": {"q": question}})
            assert response.status == 200, response
            body = response.json()
            answer = body["answers"]["q"]
            self.known[key] = ((answer["choice"], answer["probabilities"], answer["confidence"]),
                               body["usage"]["input_tokens"])
        return self.known[key]

    def __call__(self, state, questions):
        alone = {name: self.answer(state, question) for name, question in questions.items()}
        return {name: answer for name, (answer, _) in alone.items()}, sum(tokens for _, tokens in alone.values())


def told(worker, status):
    """How many decisions had this status, by the log, whose line comes a moment after the answer."""
    lines = (json.loads(line) for line in worker.log_text().splitlines())
    return sum(line["message"] == "decision" and int(line["status"]) == status for line in lines)


def refused(name, client, error, status, *words):
    """Whether a client tells a refusal by its own type of error, with the status and the worker's words."""
    adapter = client.adapter
    good = isinstance(error, adapter.errors[status]) and adapter.status(error) == status
    check(name, good and all(word in adapter.text(error) for word in words), repr(error))


def answers(adapter, worker, expected, requests):
    with Client(adapter, worker) as client:
        for request in requests:
            state, questions = request["state"], request["questions"]
            got = client.ask(state, questions)
            check(f"{adapter.name}: the same as alone", got == expected(state, questions), got, request)
        asked = [request for _, request in zip(range(TOGETHER), requests * TOGETHER)]
        futures = [client.begin(request["state"], request["questions"]) for request in asked]
        got = [future.result(PATIENCE) for future in futures]
        check(f"{adapter.name}: {TOGETHER} at a time", got == [expected(r["state"], r["questions"]) for r in asked])
        before = told(worker, 422)
        for question in (SCORE, NOUL):
            error = client.failure("the screen", {"first": QUESTION, "other": question})
            refused(f"{adapter.name}: {question['type']}", client, error, 422, question["type"], "not supported", "other")
        check(f"{adapter.name}: goes on after refusals",
              client.ask("the screen", {"q": QUESTION}) == expected("the screen", {"q": QUESTION}))
        wait_for(lambda: told(worker, 422) >= before + 2, "the log")
        check(f"{adapter.name}: a refusal is not tried again", told(worker, 422) == before + 2)


def full(adapter, place, expected):
    """A full queue: told 503, the client waits as long as it is told to and is answered."""
    worker = place.worker
    asked = "behind a full queue", {"q": QUESTION}
    before = told(worker, 503)
    with Client(adapter, worker) as client, place.holding(QUEUE):
        refused(f"{adapter.name}: a full queue", client, client.failure(*asked), 503, "queue is full")
        wait_for(lambda: told(worker, 503) > before, "the log")
    with Client(adapter, worker, tries=100) as client:
        with place.holding(QUEUE):
            future = client.begin(*asked)
            wait_for(lambda: told(worker, 503) > before + 1, "the refusal")
        check(f"{adapter.name}: a full queue is tried again", future.result(PATIENCE) == expected(*asked))
        futures = [client.begin(f"crowd {i}", {"q": QUESTION}) for i in range(3 * QUEUE)]
        got = [future.result(PATIENCE) for future in futures]
        check(f"{adapter.name}: until each has had its place",
              got == [expected(f"crowd {i}", {"q": QUESTION}) for i in range(3 * QUEUE)])


def given_up(adapter, place, expected):
    """A client that has gone while it waited leaves no trace."""
    worker = place.worker
    asked = "nobody waits for this", {"a": QUESTION, "b": QUESTION}
    with Client(adapter, worker) as client:
        with place.holding(0):
            before = place.passes()
            error = client.failure(*asked, timeout=0.5)
            check(f"{adapter.name}: its own timeout", isinstance(error, adapter.too_late), repr(error))
            wait_for(lambda: place.waiting() == 0, "an empty queue")
            if adapter.asynchronous:
                future = client.begin(*asked)
                wait_for(lambda: place.waiting() == 2, "the questions")
                future.cancel()
                wait_for(lambda: place.waiting() == 0, "an empty queue")
        got = client.ask("after", {"q": QUESTION})
        check(f"{adapter.name}: the next is answered", got == expected("after", {"q": QUESTION}), got)
        check(f"{adapter.name}: and nothing else was scored", place.passes() <= before + 2, place.passes(), before)


def keys(adapter, worker, expected):
    with Client(adapter, worker, key="right-key") as client:
        asked = "with a key", {"q": QUESTION}
        check(f"{adapter.name}: the right key", client.ask(*asked) == expected(*asked))
    with Client(adapter, worker, key="wrong-key") as client:
        refused(f"{adapter.name}: a wrong key", client, client.failure(*asked), 401, "key")


def official(worker):
    """What the official SDK alone has."""
    with sdk.TypeSafeClient(base_url=url(worker), api_key="any", model=client_adapters.MODEL) as client:
        names = [model.name for model in client.models.list().models]
        check("typesafe-sdk: the list of models", client_adapters.MODEL in names, names)
        long = {"state": "many words " * 200, "questions": {"q": sdk.Choice(instructions="Go", criteria={"a": None})}}
        try:
            client.system_one(**long)
            check("typesafe-sdk: compresses", False)
        except sdk.TypeSafeBadRequestError as error:
            check("typesafe-sdk: a compressed body", "zstd" in str(error) and "Content-Encoding" in str(error), error)
        try:
            client.system_one(state="short", questions={"q": sdk.Choice(criteria={"a": None})})
            check("typesafe-sdk: leaves instructions out", False)
        except sdk.TypeSafeUnprocessableEntityError as error:
            check("typesafe-sdk: no instructions", "instructions" in str(error), error)
        try:
            client.system_one(state="short", questions={"q": QUESTION}, model="jev-latest")
            check("typesafe-sdk: another model", False)
        except sdk.TypeSafeUnprocessableEntityError as error:
            check("typesafe-sdk: another model", "model" in str(error), error)


def unchanged(worker):
    """The official SDK with its own defaults, at a worker that accepts the name of its model."""
    with sdk.TypeSafeClient(base_url=url(worker), api_key="right-key") as client:
        response = client.system_one(state="the screen", questions={"q": QUESTION})
        check("typesafe-sdk: its own model's name", response.choices["q"].choice in QUESTION["criteria"], response)
        check("typesafe-sdk: is listed", "jev-latest" in [model.name for model in client.models.list().models])


def documented(page, worker):
    """Runs the Python programs of the page's section on clients."""
    section = re.search(r"^## Clients\n(.*?)(?=^## |\Z)", Path(page).read_text(), re.MULTILINE | re.DOTALL)
    programs = re.findall(r"^```python\n(.*?)^```$", section[1] if section else "", re.MULTILINE | re.DOTALL)
    check("the page has programs", programs)
    for program in programs:
        done = subprocess.run([sys.executable, "-c", program.replace("http://127.0.0.1:8000", url(worker))],
                              capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        check("a program of the page", done.returncode == 0 and done.stdout, done.stdout, done.stderr, program)


def main():
    parser = argparse.ArgumentParser()
    for flag in ("server", "lib", "model", "fake", "requests", "docs"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--only", default="", help="clients whose name has this")
    options = parser.parse_args()
    server, lib, fake = (os.path.abspath(path) for path in (options.server, options.lib, options.fake))
    adapters = [adapter for adapter in ADAPTERS if options.only in adapter.name]
    single = samples(options.requests)
    requests = single[::6] + several_questions(single, 5, 3)
    log = "--log-format", "json"
    with Worker(server, lib, options.model, "--batch", "off") as alone:
        expected = Expected(alone)
        with Worker(server, lib, options.model, *log) as worker:
            for adapter in adapters:
                answers(adapter, worker, expected, requests)
            official(worker)
            documented(options.docs, worker)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "keys")
            path.write_text("another-key\nright-key\n", encoding="ascii")
            with Worker(server, lib, options.model, "--api-key-file", str(path),
                        "--accept-model", sdk.constants.DEFAULT_MODEL) as worker:
                unchanged(worker)
                for adapter in adapters:
                    keys(adapter, worker, expected)
    with Worker(server, fake, "x") as alone, tempfile.TemporaryDirectory() as folder:
        expected = Expected(alone)
        with Held(server, fake, folder, *log, "--max-queue-requests", str(QUEUE)) as place:
            for adapter in adapters:
                full(adapter, place, expected)
        with Held(server, fake, folder, *log) as place:
            for adapter in adapters:
                given_up(adapter, place, expected)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
