# SPDX-License-Identifier: Apache-2.0
"""A worker that does not get on: for what clients see of a full queue."""
import contextlib
import json
from pathlib import Path

from worker import Worker, post, wait_for

QUESTION = {"type": "choice", "instructions": "Go", "criteria": {"yes": "Do it", "no": "Leave it"}}


class Held:
    """A worker of the tests' library, one prompt a pass, that can be held in a call while questions wait."""

    def __init__(self, server, fake, folder, *flags):
        self.hold, self.calls = Path(folder, "hold"), Path(folder, "calls")
        self.calls.unlink(missing_ok=True)
        # Retry-After is some of these.
        self.worker = Worker(server, fake, "x", "--batch", "off", *flags, env={
            "CUA_FAKE_HOLD": str(self.hold), "CUA_FAKE_CALLS": str(self.calls), "CUA_FAKE_CALL_US": "30000"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.worker.__exit__()
        self.hold.unlink(missing_ok=True)

    def waiting(self):
        return self.worker.metrics()["cua_queue_questions"]

    def passes(self):
        return len(self.calls.read_text().splitlines())

    @contextlib.contextmanager
    def holding(self, waiting):
        """Holds it with `waiting` questions in the queue, until the end or `hold` is removed."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.hold.unlink, missing_ok=True)
            before = self.passes()
            self.hold.touch()
            connections = []
            for i in range(1 + waiting):
                connections.append(stack.enter_context(self.worker.connect()))
                body = {"model": "cua-s1-4b-0.2", "state": f"held {i}", "questions": {"q": QUESTION}}
                connections[-1].send(post(json.dumps(body).encode()))
                wait_for(lambda: self.passes() == before + 1 and self.waiting() == i, "what is held")
            yield
            self.hold.unlink(missing_ok=True)
            responses = [connection.response() for connection in connections]
            assert all(response.status == 200 for response in responses), responses
