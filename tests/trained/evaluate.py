#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a model decisions it was not trained on, through cua-server over HTTP, and prints a table.

usage: evaluate.py --server FILE --lib FILE --model FOLDER [--count N] [--splits A,B] [--kinds A,B] [--bars] [--card]

Every kind by every split, N decisions each; chance beside it. With torch and Transformers each
decision is also made by Transformers in fp32 from the same folder: the top option and the number of
tokens have to be equal on all of them. --bars fails where the demonstration model has to be better;
--card writes the table into the folder's README.md.
"""
import argparse
import concurrent.futures
import json
import os
import sys
import threading

import decisions

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from worker import Worker, post

try:
    import torch
    import transformers
except ImportError:
    torch = None

MOST = {"seen": (26,), "words": (26, 10), "templates": (10, 26), "both": (10,)}
# The kinds that the demonstration is about. The others are named in the card where they miss their bar.
CORE = ("name", "verb", "paraphrase", "affirm", "negate", "abstain")
TITLES = {"seen": "seen words and forms", "words": "unseen words", "templates": "unseen forms", "both": "unseen words and forms"}


def ask(worker, made):
    """Over one connection a thread: the options' probabilities and the tokens of the prompt."""
    results = [None] * len(made)
    local = threading.local()

    def one(i):
        if not hasattr(local, "connection"):
            local.connection = worker.connect()
        local.connection.send(post(json.dumps(made[i].request()).encode()))
        response = local.connection.response()
        assert response.status == 200, response
        answer = response.json()
        results[i] = (list(answer["answers"]["q"]["probabilities"].values()), answer["usage"]["input_tokens"])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in pool.map(one, range(len(made))):
            pass
    return results


class Reference:
    """Transformers, fp32, one prompt at a time."""

    def __init__(self, folder):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
        self.letters = self.model.get_input_embeddings().weight[32:58]

    @torch.no_grad() if torch else (lambda f: f)
    def ask(self, made):
        ids = self.tokenizer.encode(made.prompt()[0], add_special_tokens=False)
        hidden = self.model.model(torch.tensor([ids])).last_hidden_state[0, -1]
        return torch.softmax((self.letters @ hidden)[:len(made.options)], 0).tolist(), len(ids)


def top(probabilities):
    return max(range(len(probabilities)), key=lambda i: (probabilities[i], -i))


def percent(hits, count):
    return f"{100 * hits / count:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("server", "lib", "model"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", default="evaluation 1")
    parser.add_argument("--splits", default=",".join(MOST))
    parser.add_argument("--kinds", default=",".join(decisions.KINDS))
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--needs-reference", action="store_true", help="skipped (77) without torch and Transformers")
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--card", action="store_true")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if arguments.needs_reference and not torch:
        print("SKIPPED: no torch or Transformers")
        return 77
    reference = Reference(arguments.model) if torch and not arguments.no_reference else None
    if not reference:
        print("without Transformers: no comparison with it")
    columns = [(split, most) for split in arguments.splits.split(",") for most in MOST[split]]
    hits, chance, differing, total, worst = {}, {}, 0, 0, 0.0
    with Worker(arguments.server, arguments.lib, arguments.model) as worker:
        for split, most in columns:
            for kind in kinds:
                made = decisions.decisions(arguments.seed, kind, split, arguments.count, most=most)
                answers = ask(worker, made)
                hits[split, most, kind] = sum(top(p) == one.answer for (p, _), one in zip(answers, made))
                chance[split, most, kind] = sum(1 / len(one.options) for one in made)
                total += len(made)
                for one, (probabilities, tokens) in zip(made, answers) if reference else ():
                    theirs, count = reference.ask(one)
                    worst = max(worst, max(abs(a - b) for a, b in zip(probabilities, theirs)))
                    if top(theirs) != top(probabilities) or tokens != count:
                        differing += 1
                        print(f"DIFFERS from Transformers: {kind} {split} {one.goal!r}: {top(probabilities)} {top(theirs)}, "
                              f"{tokens} and {count} tokens")
                print(f"{split:10} 2-{most:<3}{kind:14} {percent(hits[split, most, kind], len(made)):>6} %   "
                      f"chance {percent(chance[split, most, kind], len(made)):>5} %", flush=True)

    n = arguments.count
    lines = ["| goal | " + " | ".join(f"{TITLES[s]}, 2 to {m}" for s, m in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for kind in kinds:
        lines.append(f"| {kind} | " + " | ".join(f"{percent(hits[s, m, kind], n)} ({percent(chance[s, m, kind], n)})" for s, m in columns)
                     + " |")
    core = [kind for kind in kinds if kind in CORE]
    if len(core) == len(CORE):
        lines.append("| *the first six* | " + " | ".join(
            f"{percent(sum(hits[s, m, k] for k in core), n * len(core))}" for s, m in columns) + " |")
    text = "\n".join(lines)
    print("\n" + text)
    if reference:
        print(f"\n{total} decisions, {differing} differ from Transformers' top option; largest difference of a probability {worst:.1e}")
    failed = differing > 0
    if arguments.bars:
        bars = [(f"words {k}", hits["words", 26, k] / n, 0.98) for k in core]
        bars += [(f"templates {k}", hits["templates", 10, k] / n, 0.85) for k in core]
        bars.append(("templates, all six", sum(hits["templates", 10, k] for k in core) / n / len(core), 0.90))
        for name, share, bar in bars:
            if share < bar:
                failed = True
                print(f"BELOW its bar: {name} {100 * share:.1f} % of {100 * bar:.0f} %")
    if arguments.card:
        path = os.path.join(arguments.model, "README.md")
        with open(path) as file:
            before = file.read().split("<!-- accuracy -->")[0]
        compared = (f"All {total:,} top options equal those of Transformers {transformers.__version__} in fp32." if reference and not differing
                    else "")
        with open(path, "w") as file:
            file.write(f"""{before}<!-- accuracy -->
## Accuracy

Percent right of {n} decisions a cell, chance in brackets, made by cua-server on the CPU library over HTTP (`tests/trained/evaluate.py`,
seed "{arguments.seed}"). {compared} Unseen words: every name and object is of words that training never showed. Unseen forms: the goal's
sentence and a part of the state's and of the options' form are held back from training.

{text}

`position`: "the second item", options in the order of the screen; `position-tree`: options in another order; `id`: the options
show the element's id; `id-tree`: only the state does; `role`: "the checkbox".
""")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
