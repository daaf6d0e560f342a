#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cua-export merge against PEFT's own merge, and its folders in Transformers and back.

usage: peft_test.py --export FILE --lib FILE --data FOLDER     (FOLDER: the unpacked tests/data)

Needs torch, transformers, peft and safetensors from PyPI; skipped (77) without them.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
from library import Engine

failures = []
checks = 0


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def merge(export, base, adapter, out, *flags):
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([export, "merge", "--base", base, "--adapter", adapter, "--out", out, *flags], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return load_file(os.path.join(out, "model.safetensors"))


def merged_by_peft(base, adapter):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()


def steps_apart(a, b):
    """How many bf16 numbers lie from a to b, element by element."""
    def order(x):
        bits = x.view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7fff), bits)
    return (order(a) - order(b)).abs()


def compare(name, ours, model):
    theirs = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}
    check(f"{name}: the same tensors", set(ours) == set(theirs), set(ours) ^ set(theirs))
    elements = different = 0
    for key, tensor in theirs.items():
        apart = steps_apart(ours[key], tensor.to(torch.bfloat16))
        elements += apart.numel()
        different += int((apart > 0).sum())
        check(f"{name}: {key} within one step", int(apart.max()) <= 1, int(apart.max()))
    check(f"{name}: at most 1 element of 100,000 differs", different * 100000 <= elements, different, elements)
    print(f"{name}: {different} of {elements} elements differ by a step of bf16")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--export", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    golden = os.path.join(options.data, "golden")
    base = os.path.join(golden, "mid")
    with open(os.path.join(golden, "golden_lora.json"), encoding="utf-8") as file:
        prompts = json.load(file)["prompts"]
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        model = merged_by_peft(base, os.path.join(golden, "mid_lora"))
        ours = merge(options.export, base, os.path.join(golden, "mid_lora"), out, "--transformers-bf16")
        compare("mid_lora", ours, model)

        # Ours in Transformers.
        loaded = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
        with Engine(options.lib, out) as engine, torch.no_grad():
            for prompt in prompts:
                logits = loaded(torch.tensor([prompt["ids"]])).logits[0, -1, 32:58]
                score = engine.score([prompt["ids"]])[0]
                check(f"{prompt['name']}: the same top option", score.best == int(logits.argmax()))
                check(f"{prompt['name']}: the same logits", max(
                    abs(a - b) for a, b in zip(score.logits, logits.tolist())) < 1e-3)

        # Theirs in ours: merge, cast, save_pretrained, marker.
        theirs = os.path.join(work, "theirs")
        model.to(torch.bfloat16).save_pretrained(theirs)
        with open(os.path.join(theirs, "cua_s1_export.json"), "w", encoding="utf-8") as file:
            json.dump({"format": "cua-s1-text-merged/1", "base": "mid"}, file)
        with Engine(options.lib, out) as a, Engine(options.lib, theirs) as b:
            for prompt in prompts:
                one, two = a.score([prompt["ids"]])[0], b.score([prompt["ids"]])[0]
                check(f"{prompt['name']}: the reference exporter's folder scores alike", max(
                    abs(x - y) for x, y in zip(one.logits, two.logits)) < 1e-2 and one.best == two.best)
        verified = subprocess.run([options.export, "verify", theirs], capture_output=True, text=True, check=False)
        check("verify takes it, and says that it has no hashes", verified.returncode == 0
              and "the marker has none" in verified.stdout, verified.stdout, verified.stderr)

        # Every setting that a merge heeds, as PEFT itself writes and merges it.
        cases = {
            "rank and alpha patterns": {"target_modules": ["q_proj", "v_proj", "down_proj"],
                                        "rank_pattern": {"q_proj": 2, r"layers\.3\.mlp\.down_proj": 6},
                                        "alpha_pattern": {"layers.7.self_attn.v_proj": 3}},
            "rsLoRA": {"target_modules": ["q_proj", "up_proj"], "use_rslora": True},
            "an expression": {"target_modules": r".*layers\.\d+\.mlp\.(gate|up)_proj"},
            "all linear": {"target_modules": "all-linear"},
            "gaussian": {"target_modules": ["o_proj"], "init_lora_weights": "gaussian"},
        }
        for name, settings in cases.items():
            torch.manual_seed(len(name))
            fresh = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
            wrapped = peft.get_peft_model(fresh, peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **settings))
            for key, parameter in wrapped.named_parameters():
                if "lora_" in key:
                    torch.nn.init.normal_(parameter, std=0.2)
            adapter = os.path.join(work, "adapter")
            shutil.rmtree(adapter, ignore_errors=True)
            wrapped.save_pretrained(adapter)
            compare(name, merge(options.export, base, adapter, out, "--transformers-bf16"), merged_by_peft(base, adapter))

        # A base in the multimodal layout, F32 gates and all.
        wide, adapter = os.path.join(work, "wide"), os.path.join(work, "wide-adapter")
        for flags in (("--layout", "public", "--out", wide), ("--adapter", "--out", adapter)):
            subprocess.run([options.export, "synthetic", "--shape", "wide", *flags], check=True, stdout=subprocess.DEVNULL)
        ours = merge(options.export, wide, adapter, out)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
        with Engine(options.lib, out) as engine, torch.no_grad():
            for length in (1, 70, 200):
                ids = [(7 * i + length) % 640 for i in range(length)]
                logits = loaded(torch.tensor([ids])).logits[0, -1, 32:58].tolist()
                score = engine.score([ids])[0]
                check(f"wide, {length} tokens", max(abs(a - b) for a, b in zip(score.logits, logits)) < 1e-3)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
