#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An answer does not depend on what is scored beside it: bit for bit, over HTTP, with either library.

usage: company.py --server FILE --lib FILE --model DIR --requests FILE [--graph MODE] [--rounds N]

Every answer of a worker that scores one prompt a pass is compared, byte for byte, with those of one that batches
what many connections ask at once.
"""
import argparse
import os
import random
import sys
import threading

from sample_requests import alone, encoded, one_goal, samples, several_questions
from worker import PATIENCE, Worker, post

CONNECTIONS = 24

failures = []
checks = 0


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def ask(worker, bodies, expected, seed, wrong):
    """Half of the bodies in an order of one's own over one connection; notes the answers that are not the expected."""
    order = random.Random(seed).sample(range(len(bodies)), len(bodies) // 2)
    try:
        with worker.connect() as connection:
            for i in order:
                connection.send(post(bodies[i]))
                response = connection.response()
                if response is None or response.status != 200 or response.body != expected[i]:
                    wrong.append((i, response, expected[i]))
    except Exception as failure:  # a thread's own would be lost
        wrong.append((seed, repr(failure), None))


def passes(worker):
    """(passes, those of one prompt, prompts, the library's own passes) so far."""
    metrics = worker.metrics()
    return tuple(int(metrics[series]) for series in (
        "cua_batch_prompts_count", 'cua_batch_prompts_bucket{le="1"}', "cua_batch_prompts_sum", "cua_forwards_total"))


def main():
    parser = argparse.ArgumentParser()
    for flag in ("server", "lib", "model", "requests"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--graph", default="0", help="of the worker that batches")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    server, lib = os.path.abspath(options.server), os.path.abspath(options.lib)
    single = samples(options.requests)
    # About as many questions of the ones as of the others.
    bodies = encoded(single + several_questions(single, 3, 12) + several_questions(single, 20, 2) + one_goal(single, 8, 3))
    with Worker(server, lib, options.model, "--batch", "off", "--log-level", "error") as worker:
        expected = alone(worker, bodies)
        count, of_one, prompts, _ = passes(worker)
        check("without batches a pass is a prompt", count == of_one == prompts > len(bodies), count, of_one, prompts)
        check("ends well", worker.stop()[0] == 0)
    check("the answers differ from each other", len(set(expected)) > len(single) / 2, len(set(expected)))
    with Worker(server, lib, options.model, "--graph", options.graph, "--log-level", "error") as worker:
        count_before, of_one_before, prompts_before, forwards_before = passes(worker)
        for round_ in range(options.rounds):
            wrong = []
            threads = [threading.Thread(target=ask, args=(worker, bodies, expected, CONNECTIONS * round_ + i, wrong))
                       for i in range(CONNECTIONS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10 * PATIENCE)
            check("every connection is through", not any(thread.is_alive() for thread in threads))
            check("the same bytes in company", not wrong, len(wrong), wrong[:1])
        count, of_one, prompts, forwards = passes(worker)
        count, of_one, prompts = count - count_before, of_one - of_one_before, prompts - prompts_before
        forwards -= forwards_before
        check("batches formed", prompts >= 4 * count and 2 * of_one < count, count, of_one, prompts)
        check("in the library too", prompts >= 2 * forwards > 0, prompts, forwards)
        check("ends well", worker.stop()[0] == 0)
    print(f"{prompts} prompts in {count} batches, {of_one} of them of one prompt; {forwards} passes of the library")
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
