# SPDX-License-Identifier: Apache-2.0
"""Requests made of those in tests/data/requests, and the answers that they have alone."""
import json
import random


def samples(path):
    """The requests as they are, a question each."""
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["request"] for line in lines]


def several_questions(requests, n, count, seed=0):
    """`count` requests of `n` questions: the state of one sample, the questions of others."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        questions = {}
        for i in range(n):
            other = draw.choice(requests)["questions"]
            questions[f"question {i}"] = draw.choice(list(other.values()))
        made.append({**draw.choice(requests), "questions": questions})
    return made


def one_goal(requests, n, count, seed=0):
    """`count` requests of `n` questions: one goal, the options of others; their prompts begin alike."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        one = draw.choice(requests)
        question = next(iter(one["questions"].values()))
        questions = {f"group {i}": {**question, "criteria": next(iter(draw.choice(requests)["questions"].values()))["criteria"]}
                     for i in range(n)}
        made.append({**one, "questions": questions})
    return made


def encoded(requests):
    return [json.dumps(request).encode() for request in requests]


def alone(worker, bodies):
    """The answer's bytes to each body, asked one after the other; of a worker with `--batch off`, so that a
    question has no company in its own request either."""
    answers = []
    for body in bodies:
        response = worker.post(body)
        assert response.status == 200, response
        answers.append(response.body)
    return answers
