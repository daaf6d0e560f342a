#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The numerical gate: the CUDA library against Transformers on the same GPU, same checkpoint.

usage: gate.py --lib FILE --model DIR --requests FILE [--longest 16000]

(1) The largest probability difference from fp32 Transformers is at most twice that of bf16
    Transformers, plus 0.01.
(2) The top option agrees wherever fp32's top two differ by at least 0.05.
"""
import argparse
import json
import random
import sys
import time

import torch
import transformers

from library import Engine

LETTERS = list(range(32, 58))


def prompt_text(request, question):
    """The prompt of docs/http.md, written a second time."""
    def dump(value):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    lines = []
    for letter, (key, value) in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", question["criteria"].items()):
        label = json.dumps(key if value is None else dump(value), ensure_ascii=False)[1:-1]
        lines.append(f'{letter}. Decision "{label}" -> select\n')
    goal = dump(question["instructions"] or "") if question["instructions"] not in ({}, []) else dump(
        question["instructions"])
    return ("<|im_start|>system\nYou are a one-pass computer-use decision model. You are shown the current state of a "
            "screen and a fixed, closed list of candidate (element, action) options, each given a single letter. Choose "
            "exactly one option: the single best next action to take. Answer with ONLY that option's letter -- no words, "
            "no punctuation, no explanation.<|im_end|>\n<|im_start|>user\n" + (f"Goal: {goal}\n\n" if goal else "")
            + "App: Cua Driver\nTask family: closed-candidate decision\n\nAccessibility tree:\n" + dump(request["state"])
            + "\n\nOptions:\n" + "".join(lines)
            + "\nAnswer with a single letter.<|im_end|>\n<|im_start|>assistant\n<think>\n")


def collect(engine, path, longest):
    """(ids, options) of request data whole, cut and joined: 1 to 2,079 tokens, and one of `longest`."""
    whole = []
    for line in open(path, encoding="utf-8"):
        request = json.loads(line)["request"]
        for question in request["questions"].values():
            whole.append((engine.tokenize(prompt_text(request, question)), len(question["criteria"])))
    draw = random.Random(1)
    prompts = whole[:40]
    joined = [i for ids, _ in whole for i in ids]
    for length in (1, 2, 3, 4, 5, 17, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 511, 512, 513, 700, 1024,
                   1025, 1500, 2048, 2079):
        start = draw.randrange(len(joined) - length)
        prompts.append((joined[start:start + length], 26))
    if longest:
        prompts.append(((joined * (longest // len(joined) + 1))[:longest], 26))
    return prompts


@torch.no_grad()
def reference(model, prompts, dtype):
    """Letter logits of Transformers, from its hidden state in float32."""
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype, device_map={"": 0}).eval()
    rows = network.get_input_embeddings().weight[LETTERS].float()
    logits = []
    for ids, _ in prompts:
        hidden = network.model(torch.tensor([ids], device=0), use_cache=False).last_hidden_state[0, -1]
        logits.append((rows @ hidden.float()).double().cpu())
    del network
    torch.cuda.empty_cache()
    return logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", required=True)
    parser.add_argument("--longest", type=int, default=16000)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    began = time.time()
    with Engine(options.lib, options.model) as engine:
        prompts = collect(engine, options.requests, options.longest)
        print(f"library loaded in {time.time() - began:.1f} s: {engine.describe()}")
        ours = [torch.tensor(list(engine.score([ids], n)[0].logits)).double() for ids, n in prompts]
    began = time.time()
    exact = reference(options.model, prompts, torch.float32)
    print(f"Transformers {transformers.__version__} fp32: {time.time() - began:.0f} s")
    began = time.time()
    bf16 = reference(options.model, prompts, torch.bfloat16)
    print(f"Transformers bf16: {time.time() - began:.0f} s")

    def probabilities(logits):
        return [torch.softmax(x[:n], 0) for x, (_, n) in zip(logits, prompts)]

    p, own, theirs = probabilities(exact), probabilities(ours), probabilities(bf16)
    ours_off = [(a - b).abs().max().item() for a, b in zip(own, p)]
    theirs_off = [(a - b).abs().max().item() for a, b in zip(theirs, p)]
    limit = 2 * max(theirs_off) + 0.01
    wrong = []
    close = 0
    for i, (a, b) in enumerate(zip(own, p)):
        top = b.sort(descending=True).values
        if len(b) > 1 and top[0] - top[1] < 0.05:
            close += 1
        elif a.argmax() != b.argmax():
            wrong.append((i, len(prompts[i][0])))
    tops = len({int(x.argmax()) for x in exact})
    print(f"{len(prompts)} prompts of {min(len(x) for x, _ in prompts)} to {max(len(x) for x, _ in prompts)} tokens, "
          f"{tops} different letters on top")
    print(f"largest probability difference from fp32: library {max(ours_off):.5f}, bf16 Transformers "
          f"{max(theirs_off):.5f}, limit {limit:.5f}")
    print(f"mean of each prompt's largest: library {sum(ours_off) / len(p):.5f}, bf16 Transformers "
          f"{sum(theirs_off) / len(p):.5f}")
    print(f"top option: {len(p) - close - len(wrong)} agree, {len(wrong)} differ, {close} with a margin under 0.05")
    if max(ours_off) > limit or wrong or not all(torch.isfinite(x).all() for x in ours):
        sys.exit(f"outside the gate: {wrong}")
    print("inside the gate")


if __name__ == "__main__":
    main()
