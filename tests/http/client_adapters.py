# SPDX-License-Identifier: Apache-2.0
"""The clients that others wrote, each used as its own documentation says, behind one face for real_clients.py.

An adapter is made for a worker's address and has

    ask(state, questions, timeout=None)   (answers, input tokens); answers: {name: (choice, probabilities, confidence)}
    errors     {status: the client's own type of error}
    too_late   the client's own type of error where `timeout` has passed
    status(error), text(error)            of such an error

`ask` of those with `asynchronous` is a coroutine. With `tries` more than 1 a request that is told 503 is tried again,
by the client's own means where it has them.
"""
import asyncio
import json
import os
import subprocess
import tempfile
import time
import warnings

os.environ.update(NO_PROXY="*", no_proxy="*")  # read while a client is made
for variable in [name for name in os.environ if name.startswith(("TYPESAFE_", "SYSTEM_ONE_", "LANGSMITH_", "LANGCHAIN_"))]:
    del os.environ[variable]

import httpx  # noqa: E402
import httpx2  # noqa: E402
import langchain_typesafe as langchain  # noqa: E402
import langchain_typesafe.client as langchain_errors  # noqa: E402
import pydantic_ai.exceptions as pydantic_errors  # noqa: E402
import tenacity  # noqa: E402
import typesafe_sdk as sdk  # noqa: E402
from pydantic_ai.models import decision  # noqa: E402
from pydantic_ai.models.system_one import SystemOneModel  # noqa: E402
from pydantic_ai.providers.system_one import SystemOneProvider  # noqa: E402
from pydantic_ai.retries import AsyncHTTPX2TenacityTransport, RetryConfig, wait_retry_after  # noqa: E402

warnings.filterwarnings("ignore", message=".*in beta")
MODEL = "cua-s1-4b-0.2"
PATIENCE = 60
NEVER = 3600  # seconds, of a client's own clock where Retry-After is to be followed


def of_json(text):
    body = json.loads(text)
    answers = {name: (a["choice"], a["probabilities"], a["confidence"]) for name, a in body["answers"].items()}
    return answers, body["usage"]["input_tokens"]


class Sdk:
    """The official SDK."""

    name, asynchronous = "typesafe-sdk", False
    client_type = sdk.TypeSafeClient
    errors = {400: sdk.TypeSafeBadRequestError, 401: sdk.TypeSafeAuthenticationError,
              422: sdk.TypeSafeUnprocessableEntityError, 503: sdk.TypeSafeInternalServerError}
    too_late = sdk.TypeSafeAPITimeoutError

    def __init__(self, url, key="any", tries=1):
        retry = sdk.RetryPolicy(max_retries=tries - 1, timeout=None, backoff_initial=NEVER, backoff_max=NEVER)
        # Without compression=False it sends bodies from 1 KiB on as zstd, where it can, and the worker takes none.
        self.client = self.client_type(base_url=url, api_key=key, model=MODEL, timeout=PATIENCE, compression=False,
                                       retry=retry)

    def close(self):
        self.client.close()

    def arguments(self, state, questions, timeout):
        made = {name: {"choice": sdk.Choice, "score": sdk.Score, "noul": sdk.Noul}[q["type"]](
            **{k: v for k, v in q.items() if k != "type"}) for name, q in questions.items()}
        return {"state": state, "questions": made, "timeout": timeout}

    @staticmethod
    def of(response):
        assert response.request_id == response.raw_http_response.headers["x-request-id"], response
        return ({name: (a.choice, a.probabilities, a.confidence) for name, a in response.choices.items()},
                response.usage.input_tokens)

    def ask(self, state, questions, timeout=None):
        return self.of(self.client.system_one(**self.arguments(state, questions, timeout)))

    @staticmethod
    def status(error):
        return error.status

    @staticmethod
    def text(error):
        return str(error)


class AsyncSdk(Sdk):
    name, asynchronous = "typesafe-sdk, asynchronous", True
    client_type = sdk.AsyncTypeSafeClient

    async def close(self):
        await self.client.aclose()

    async def ask(self, state, questions, timeout=None):
        return self.of(await self.client.system_one(**self.arguments(state, questions, timeout)))


class Httpx:
    name, asynchronous = "httpx", False
    client_type = httpx.Client
    errors = dict.fromkeys((400, 401, 422, 503), httpx.HTTPStatusError)
    too_late = httpx.TimeoutException

    def __init__(self, url, key=None, tries=1):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = self.client_type(base_url=url, headers=headers, timeout=PATIENCE)
        self.tries = tries

    def close(self):
        self.client.close()

    @staticmethod
    def arguments(state, questions, timeout):
        arguments = {"json": {"model": MODEL, "state": state, "questions": questions}}
        return {**arguments, "timeout": timeout} if timeout else arguments

    @staticmethod
    def pause(response):
        """httpx tries nothing again by itself."""
        return int(response.headers["retry-after-ms"]) / 1000

    def ask(self, state, questions, timeout=None):
        for left in reversed(range(self.tries)):
            response = self.client.post("/v1/systemone", **self.arguments(state, questions, timeout))
            if response.status_code != 503 or not left:
                break
            time.sleep(self.pause(response))
        return of_json(response.raise_for_status().text)

    @staticmethod
    def status(error):
        return error.response.status_code

    @staticmethod
    def text(error):
        return error.response.json()["detail"]


class AsyncHttpx(Httpx):
    name, asynchronous = "httpx, asynchronous", True
    client_type = httpx.AsyncClient

    async def close(self):
        await self.client.aclose()

    async def ask(self, state, questions, timeout=None):
        for left in reversed(range(self.tries)):
            response = await self.client.post("/v1/systemone", **self.arguments(state, questions, timeout))
            if response.status_code != 503 or not left:
                break
            await asyncio.sleep(self.pause(response))
        return of_json(response.raise_for_status().text)


class CurlFailure(Exception):
    pass


class CurlTimeout(Exception):
    pass


class Curl:
    name, asynchronous = "curl", False
    errors = dict.fromkeys((400, 401, 422, 503), CurlFailure)
    too_late = CurlTimeout

    def __init__(self, url, key=None, tries=1):
        self.command = ["curl", "--silent", "--fail-with-body", "--max-time", str(PATIENCE), url + "/v1/systemone",
                        "--data-binary", "@-", "--write-out", "%{stderr}%{http_code}"]
        if key:
            self.command += ["--oauth2-bearer", key]
        if tries > 1:
            self.command += ["--retry", str(tries - 1), "--retry-delay", str(NEVER)]

    def close(self):
        pass

    def ask(self, state, questions, timeout=None):
        body = json.dumps({"model": MODEL, "state": state, "questions": questions}).encode()
        limit = ["--max-time", str(timeout)] if timeout else []
        with tempfile.NamedTemporaryFile() as output:  # a refusal that is tried again is overwritten there
            done = subprocess.run([*self.command, *limit, "--output", output.name], input=body, stderr=subprocess.PIPE,
                                  check=False)
            answer = output.read()
        if done.returncode == 28:
            raise CurlTimeout
        if done.returncode == 22:
            raise CurlFailure(int(done.stderr), json.loads(answer)["detail"])
        assert done.returncode == 0, done
        return of_json(answer)

    @staticmethod
    def status(error):
        return error.args[0]

    @staticmethod
    def text(error):
        return error.args[1]


class LangChain:
    name, asynchronous = "langchain-typesafe", False
    errors = {400: langchain_errors.TypeSafeBadRequestError, 401: langchain_errors.TypeSafeAuthenticationError,
              422: langchain_errors.TypeSafeUnprocessableEntityError,
              503: langchain_errors.TypeSafeInternalServerError}
    too_late = langchain_errors.TypeSafeAPITimeoutError

    def __init__(self, url, key="any", tries=1):
        self.made = []
        self.options = {"base_url": url, "api_key": key, "model": MODEL}
        self.tries = tries
        self.usual = self.make(PATIENCE)

    def make(self, timeout):
        """A classifier has one timeout."""
        self.made.append(langchain.TypeSafeClassifier(**self.options, timeout=timeout))
        if self.tries == 1:
            return self.made[-1]
        # It does not know Retry-After.
        return self.made[-1].with_retry(retry_if_exception_type=(self.errors[503],), stop_after_attempt=self.tries,
                                        exponential_jitter_params={"initial": 0.05, "max": 1, "jitter": 0.1})

    def close(self):
        for classifier in self.made:
            classifier.client.close()

    @staticmethod
    def request(state, questions):
        made = {}
        for name, question in questions.items():
            options = {k: v for k, v in question.items() if k != "type"}
            options["instructions"] = options["instructions"] or ""
            if question["type"] == "choice":  # it leaves out what has no label
                options["criteria"] = {k: k if v is None else v for k, v in question["criteria"].items()}
            made[name] = {"choice": langchain.Choice, "score": langchain.Score, "noul": langchain.Noul}[question["type"]](
                **options)
        return {"state": state, "questions": made}

    @staticmethod
    def of(response):
        return ({name: (a.choice, a.probabilities, a.confidence) for name, a in response.choices.items()},
                response.usage.input_tokens)

    def ask(self, state, questions, timeout=None):
        classifier = self.make(timeout) if timeout else self.usual
        return self.of(classifier.invoke(self.request(state, questions)))

    @staticmethod
    def status(error):
        return error.status

    @staticmethod
    def text(error):
        """str(error) has the status alone, on purpose."""
        return error.body["detail"]


class AsyncLangChain(LangChain):
    name, asynchronous = "langchain-typesafe, asynchronous", True

    async def close(self):
        for classifier in self.made:
            classifier.client.close()
            await classifier.async_client.aclose()

    async def ask(self, state, questions, timeout=None):
        classifier = self.make(timeout) if timeout else self.usual
        return self.of(await classifier.ainvoke(self.request(state, questions)))


class PydanticAi:
    """Its model for this API. An agent makes the questions of its output type: the page's program does."""

    name, asynchronous = "pydantic-ai", True
    errors = {400: pydantic_errors.ModelRequestRejectedError, 401: pydantic_errors.ModelAuthenticationError,
              422: pydantic_errors.ModelRequestRejectedError, 503: pydantic_errors.ModelUnavailableError}
    too_late = pydantic_errors.ModelTimeoutError

    def __init__(self, url, key=None, tries=1):
        transport = None
        if tries > 1:
            transport = AsyncHTTPX2TenacityTransport(
                RetryConfig(retry=tenacity.retry_if_exception_type(httpx2.HTTPStatusError), reraise=True,
                            wait=wait_retry_after(tenacity.wait_fixed(NEVER)), stop=tenacity.stop_after_attempt(tries)),
                validate_response=lambda response: response.raise_for_status() if response.status_code == 503 else None)
        self.client = httpx2.AsyncClient(timeout=PATIENCE, transport=transport)
        self.model = SystemOneModel(MODEL, provider=SystemOneProvider(base_url=url, api_key=key, http_client=self.client))

    async def close(self):
        await self.client.aclose()

    async def ask(self, state, questions, timeout=None):
        kinds = {"choice": decision.ChoiceQuestion, "score": decision.ScoreQuestion, "noul": decision.NoulQuestion}
        made = {name: kinds[q["type"]](**{**{k: v for k, v in q.items() if k != "type"},
                                          "instructions": q["instructions"] or ""}) for name, q in questions.items()}
        response = await self.model.decide(decision.DecisionRequest(state=state, questions=made),
                                           {"timeout": timeout} if timeout else {})
        return ({name: (a.choice, a.probabilities, a.confidence) for name, a in response.answers.items()},
                response.usage.input_tokens)

    @staticmethod
    def status(error):
        return error.status_code

    @staticmethod
    def text(error):
        return error.body["detail"]


ADAPTERS = (Sdk, AsyncSdk, Httpx, AsyncHttpx, Curl, LangChain, AsyncLangChain, PydanticAi)
