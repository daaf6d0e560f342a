#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cua-export merge, verify and info, as a user runs them.

usage: merge_test.py --export FILE --lib FILE --data FOLDER     (FOLDER: the unpacked tests/data)
"""
import argparse
import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import tensor_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
from library import Engine

failures = []
checks = 0
MARKER = "cua_s1_export.json"


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


# The tool runs as it is, whatever this process needs to load a library built with the sanitizers.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "ASAN_OPTIONS")}


class Tool:
    def __init__(self, program):
        self.program = program

    def __call__(self, *arguments, **options):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                              check=False, env=ENVIRONMENT, **options)
        return done.returncode, done.stdout, done.stderr


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_json(value, *path):
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        json.dump(value, file)


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def left_over(folder, name):
    """What stands in `folder` that is called after `name`."""
    return sorted(entry for entry in os.listdir(folder) if entry.startswith(name))


def merged_once(tool, golden, work):
    """Both key layouts, the scores, the marker."""
    files = {}
    for adapter in ("mid_lora", "mid_lora_mm"):
        out = os.path.join(work, adapter)
        code, said, err = tool("merge", "--base", f"{golden}/mid", "--adapter", f"{golden}/{adapter}", "--out", out)
        check(f"{adapter}: merges", code == 0 and "108 tensors, 32 of them changed" in said, code, said, err)
        check(f"{adapter}: tells of the missing tokenizer", "tokenizer.json" in err, err)
        with open(os.path.join(out, "model.safetensors"), "rb") as file:
            files[adapter] = file.read()
    check("both layouts give the same bytes", files["mid_lora"] == files["mid_lora_mm"])

    out = os.path.join(work, "mid_lora")
    marker = read_json(out, MARKER)
    check("marker: format and tool", marker["format"] == "cua-s1-text-merged/1" and marker["tool"] == "cua-export"
          and marker["tool_version"].count(".") == 2, marker)
    factors = sha256(f"{golden}/mid_lora/adapter_model.safetensors")
    check("marker: an adapter nobody knows is named by its hash", marker["model"] == f"adapter-sha256:{factors}"
          and marker["adapter"]["revision"] is None, marker)
    for part, folder in (("base", f"{golden}/mid"), ("adapter", f"{golden}/mid_lora")):
        for name, about in marker[part]["files"].items():
            path = os.path.join(folder, name)
            check(f"marker: {part} {name}", about == {"size": os.path.getsize(path), "sha256": sha256(path)}, about)
    check("marker: inputs", set(marker["base"]["files"]) == {"config.json", "model.safetensors"}
          and set(marker["adapter"]["files"]) == {"adapter_config.json", "adapter_model.safetensors"}, marker)
    check("marker: every file of the output", set(marker["files"]) == set(os.listdir(out)) - {MARKER}, marker["files"])
    for name, about in marker["files"].items():
        path = os.path.join(out, name)
        check(f"marker: {name}", about == {"size": os.path.getsize(path), "sha256": sha256(path)}, about)

    base = tensor_file.read(f"{golden}/mid/model.safetensors")
    merged = tensor_file.read(os.path.join(out, "model.safetensors"))
    factors = tensor_file.read(f"{golden}/mid_lora/adapter_model.safetensors")
    changed = {key.split(".lora_")[0].removeprefix("base_model.model.") + ".weight" for key in factors}
    check("same tensors", set(base) == set(merged))
    for name, tensor in base.items():
        if name in changed:
            check(f"{name}: merged to bf16", merged[name][0] == "BF16" and merged[name] != tensor)
        else:
            check(f"{name}: untouched", merged[name] == tensor)


def scores(lib, golden, work):
    folder = os.path.join(work, "mid_lora")
    expected = read_json(golden, "golden_lora.json")["prompts"]
    worst, moved = 0.0, []
    reference = os.path.join(work, "reference.jsonl")
    with Engine(lib, folder) as engine, open(reference, "w", encoding="utf-8") as lines:
        for prompt in expected:
            score = engine.score([prompt["ids"]])[0]
            wanted = prompt["fp64_of_bf16_merged"]
            difference = max(abs(a - b) for a, b in zip(score.logits, wanted["logits"]))
            worst = max(worst, difference)
            if difference >= 1e-4:
                moved.append(prompt["name"])
            top = max(range(26), key=lambda i: wanted["logits"][i])
            check(f"{prompt['name']}: top option", score.best == top, score.best, top)
            lines.write(json.dumps({"ids": prompt["ids"], "probabilities": wanted["probs"][25]}) + "\n")
    check("logits within 1e-3", worst < 1e-3, worst)
    check("and within 1e-4 but for a few that a tie of rounding moves", len(moved) <= 2, moved)
    print(f"scores: {len(expected)} prompts, largest logit difference {worst:.2e}, beyond 1e-4: {moved}")
    return reference


def layouts(tool, work):
    """The public layout: what is left out, what keeps its bytes, what --transformers-bf16 rounds."""
    base, adapter = os.path.join(work, "wide-base"), os.path.join(work, "wide-adapter")
    code, said, err = tool("synthetic", "--shape", "wide", "--layout", "public", "--seed", 5, "--out", base)
    check("synthetic base", code == 0, said, err)
    code, said, err = tool("synthetic", "--shape", "wide", "--adapter", "--seed", 6, "--out", adapter)
    check("synthetic adapter", code == 0, said, err)
    before = tensor_file.read(os.path.join(base, "model.safetensors"))
    check("vision and prediction tensors", any(n.startswith("model.visual.") for n in before)
          and any(n.startswith("mtp.") for n in before), list(before)[:3])
    check("no marker", not os.path.exists(os.path.join(base, MARKER)))
    for flags in ([], ["--transformers-bf16"]):
        out = os.path.join(work, "wide-merged" + "".join(flags))
        code, said, err = tool("merge", "--base", base, "--adapter", adapter, "--out", out, *flags)
        check(f"merge {flags}", code == 0, said, err)
        after = tensor_file.read(os.path.join(out, "model.safetensors"))
        check("only the text model", set(after) == {n.replace("model.language_model.", "model.") for n in before
                                                    if n.startswith("model.language_model.")})
        wide = {name for name, tensor in after.items() if tensor[0] == "F32"}
        kept = {n for n in after if n.endswith("A_log") or n.endswith("linear_attn.norm.weight")}
        check(f"F32 {flags}", wide == (set() if flags else kept), wide)
        for name in kept:
            old = before[name.replace("model.", "model.language_model.", 1)]
            wanted = old[2] if not flags else struct.pack(f"<{len(old[2]) // 4}H",
                                                          *map(tensor_file.to_bf16, tensor_file.floats(old)))
            check(f"{name} {flags}", after[name][2] == wanted)
        config = read_json(out, "config.json")
        check("config of the text model", config["model_type"] == "qwen3_5_text" and "text_config" not in config
              and config["architectures"] == ["Qwen3_5ForCausalLM"] and config["tie_word_embeddings"] is True, config)
        check("verify", tool("verify", out)[0] == 0)
        check("marker tells", read_json(out, MARKER)["transformers_bf16"] is bool(flags))
        again = os.path.join(work, "again")
        tool("merge", "--base", base, "--adapter", adapter, "--out", again, "--threads", 1, *flags)
        check("the same bytes with one thread", sha256(os.path.join(again, "model.safetensors"))
              == sha256(os.path.join(out, "model.safetensors")))
        shutil.rmtree(again)
    return base, adapter


def arithmetic(tool, golden, work):
    """rank_pattern, alpha_pattern, rsLoRA and expressions, against numbers worked out here."""
    base = f"{golden}/mid"
    weights = tensor_file.read(f"{base}/model.safetensors")
    draw = random.Random(3)
    cases = (
        ("list", {"target_modules": ["q_proj", "down_proj"]}, {}, {}),
        ("full name", {"target_modules": ["model.layers.3.self_attn.q_proj"]}, {}, {}),
        ("expression", {"target_modules": r".*layers\.[37]\.self_attn\.(q|v)_proj"}, {}, {}),
        ("rank pattern", {"target_modules": ["q_proj"], "rank_pattern": {"layers.3.self_attn.q_proj": 2}}, {3: 2}, {}),
        ("rank by expression", {"target_modules": ["q_proj"], "rank_pattern": {r"layers\.7\..*": 3}}, {7: 3}, {}),
        ("alpha pattern", {"target_modules": ["q_proj"], "alpha_pattern": {"layers.7.self_attn.q_proj": 5}}, {}, {7: 5}),
        ("rslora", {"target_modules": ["q_proj"], "use_rslora": True}, {}, {}),
        ("fan_in_fan_out", {"target_modules": ["q_proj"], "fan_in_fan_out": True}, {}, {}),
    )
    for name, settings, ranks, alphas in cases:
        folder, out = os.path.join(work, "adapter"), os.path.join(work, "out")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(folder)
        modules = {"list": [f"model.layers.{i}.mlp.down_proj" for i in range(8)]
                   + [f"model.layers.{i}.self_attn.q_proj" for i in (3, 7)],
                   "full name": ["model.layers.3.self_attn.q_proj"],
                   "expression": [f"model.layers.{i}.self_attn.{p}_proj" for i in (3, 7) for p in "qv"]}.get(
                       name, [f"model.layers.{i}.self_attn.q_proj" for i in (3, 7)])
        tensors, wanted = {}, {}
        for module in modules:
            layer = int(module.split(".")[2])
            rank, alpha = ranks.get(layer, 4), alphas.get(layer, 6)
            outputs, inputs = weights[module + ".weight"][1]
            a = [struct.unpack("<f", struct.pack("<f", draw.gauss(0, 0.2)))[0] for _ in range(rank * inputs)]
            b = [struct.unpack("<f", struct.pack("<f", draw.gauss(0, 0.2)))[0] for _ in range(outputs * rank)]
            tensors[f"base_model.model.{module}.lora_A.weight"] = tensor_file.f32([rank, inputs], a)
            tensors[f"base_model.model.{module}.lora_B.weight"] = tensor_file.f32([outputs, rank], b)
            scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
            w = tensor_file.floats(weights[module + ".weight"])
            for _ in range(200):
                o, i = draw.randrange(outputs), draw.randrange(inputs)
                value = w[o * inputs + i] + scale * sum(b[o * rank + r] * a[r * inputs + i] for r in range(rank))
                wanted[module + ".weight", o * inputs + i] = value
        tensor_file.write(os.path.join(folder, "adapter_model.safetensors"), tensors)
        write_json({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "bias": "none", **settings},
                   folder, "adapter_config.json")
        code, said, err = tool("merge", "--base", base, "--adapter", folder, "--out", out)
        check(f"{name}: merges", code == 0 and f"{len(modules)} of them changed" in said, said, err)
        check(f"{name}: warns", ("fan_in_fan_out" in err) == ("fan_in_fan_out" in settings), err)
        if code != 0:
            continue
        merged = tensor_file.read(os.path.join(out, "model.safetensors"))
        values = {module: tensor_file.floats(merged[module + ".weight"]) for module in modules}
        for (weight, at), value in wanted.items():
            got = values[weight.removesuffix(".weight")][at]
            # Half a step of bf16, and a little for fp32.
            check(f"{name}: {weight}[{at}]", abs(got - value) <= abs(value) * 2 ** -8 * 1.01 + 1e-6, got, value)


def refusals(tool, golden, work):
    """Every fault is told with the key at fault, and leaves nothing behind."""
    good_config = read_json(golden, "mid_lora/adapter_config.json")
    good = tensor_file.read(f"{golden}/mid_lora/adapter_model.safetensors")
    key = "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"
    other = key.replace("lora_A", "lora_B")
    rank, inputs = good[key][1]

    def tensors(**changes):
        result = {**good, **changes.pop("add", {})}
        for name in changes.pop("drop", ()):
            del result[name]
        return result

    def damaged(name, bad):
        dtype, shape, data = good[name]
        return (dtype, shape, struct.pack("<f", bad) + data[4:])

    as_nested = {name.replace("model.model.layers", "model.model.language_model.layers"): t for name, t in good.items()}
    cases = (
        ("DoRA", {"use_dora": True}, None, "use_dora"),
        ("another type", {"peft_type": "LOHA"}, None, "LOHA"),
        ("no type", {"peft_type": None}, None, "peft_type"),
        ("modules_to_save", {"modules_to_save": ["embed_tokens"]}, None, "modules_to_save"),
        ("bias", {"bias": "lora_only"}, None, "bias"),
        ("lora_bias", {"lora_bias": True}, None, "lora_bias"),
        ("layers_to_transform", {"layers_to_transform": [1]}, None, "layers_to_transform"),
        ("layer_replication", {"layer_replication": [[0, 4]]}, None, "layer_replication"),
        ("exclude_modules", {"exclude_modules": ["q_proj"]}, None, "exclude_modules"),
        ("target_parameters", {"target_parameters": ["x"]}, None, "target_parameters"),
        ("trainable tokens", {"trainable_token_indices": [1]}, None, "trainable_token_indices"),
        ("a setting of tomorrow", {"use_something_new": True}, None, "use_something_new"),
        ("PiSSA", {"init_lora_weights": "pissa"}, None, "init_lora_weights"),
        ("LoftQ", {"init_lora_weights": "loftq"}, None, "init_lora_weights"),
        ("no rank", {"r": None}, None, "\"r\""),
        ("rank 0", {"r": 0}, None, "\"r\""),
        ("rank a text", {"r": "16"}, None, "\"r\""),
        ("no alpha", {"lora_alpha": None}, None, "lora_alpha"),
        ("another rank", {"r": 8}, None, "rank of 8"),
        ("rank of a pattern", {"rank_pattern": {"layers.3.self_attn.q_proj": 4}}, None, key),
        ("rank pattern of text", {"rank_pattern": {"q_proj": "four"}}, None, "rank_pattern"),
        ("alpha pattern below 0", {"alpha_pattern": {"q_proj": -1}}, None, "alpha_pattern"),
        ("no targets", {"target_modules": []}, None, "target_modules"),
        ("targets of numbers", {"target_modules": [1]}, None, "target_modules"),
        ("broken expression", {"target_modules": "(q_proj"}, None, "target_modules"),
        ("endless expression", {"target_modules": "(.+.+)+X"}, None, "target_modules"),
        ("not targeted", {"target_modules": ["k_proj", "v_proj"]}, None, "target_modules"),
        ("targeted and missing", {"target_modules": good_config["target_modules"] + ["in_proj_z"]}, None, "in_proj_z"),
        ("only A", {}, tensors(drop=[other]), key),
        ("only B", {}, tensors(drop=[key]), other),
        ("one module missing", {}, tensors(drop=[key, other]), "layers.3.self_attn.q_proj"),
        ("a key for no weight", {}, tensors(add={key.replace("layers.3", "layers.2"): good[key]}), "layers.2.self_attn"),
        ("a key beyond the layers", {}, tensors(add={key.replace("layers.3", "layers.99"): good[key]}), "layers.99"),
        ("a key of no layout", {}, tensors(add={"lora_A.weight": good[key]}), "lora_A.weight"),
        ("a magnitude", {}, tensors(add={key.replace("lora_A.weight", "lora_magnitude_vector"): good[key]}),
         "lora_magnitude_vector"),
        ("an embedding's factor", {}, tensors(add={key.replace("lora_A.weight", "lora_embedding_A"): good[key]}),
         "lora_embedding_A"),
        ("both layouts at once", {}, {**good, **as_nested}, "same weight"),
        ("another base", {}, {**good, key: ("F32", [rank, inputs * 2], good[key][2] * 2)}, "another model"),
        ("a flat factor", {}, {**good, key: ("F32", [rank * inputs], good[key][2])}, key),
        ("F16", {}, {**good, key: ("F16", good[key][1], good[key][2][:rank * inputs * 2])}, "F16"),
        ("NaN", {}, {**good, key: damaged(key, math.nan)}, key),
        ("infinity", {}, {**good, other: damaged(other, math.inf)}, other),
        ("too large", {}, {**good, key: damaged(key, 3e38), other: damaged(other, 3e38)}, "not finite"),
        ("no factors", {}, {}, "no factors"),
    )
    folder, out = os.path.join(work, "refused-adapter"), os.path.join(work, "refused")

    def refused(name, needle, base=f"{golden}/mid", adapter=folder, status=1, output=out):
        code, said, err = tool("merge", "--base", base, "--adapter", adapter, "--out", output)
        check(f"refused: {name}", code == status and needle in err and said == "" and err.count("\n") <= 3,
              code, said, err)
        check(f"refused: {name}: nothing left", not left_over(work, "refused.") and not os.path.exists(out),
              os.listdir(work))

    for name, settings, factors, needle in cases:
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        write_json({**good_config, **settings}, folder, "adapter_config.json")
        tensor_file.write(os.path.join(folder, "adapter_model.safetensors"), good if factors is None else factors)
        refused(name, needle)
    write_json(good_config, folder, "adapter_config.json")
    tensor_file.write(os.path.join(folder, "adapter_model.safetensors"), good)
    with open(os.path.join(folder, "adapter_model.safetensors"), "r+b") as file:
        file.truncate(1000)
    refused("a cut adapter", "adapter_model.safetensors")
    os.rename(os.path.join(folder, "adapter_model.safetensors"), os.path.join(folder, "adapter_model.bin"))
    refused("a pickle", "pickle")
    os.remove(os.path.join(folder, "adapter_config.json"))
    refused("no adapter", "adapter_config.json")
    refused("no folder", "does not exist", adapter=os.path.join(work, "nowhere"))
    shutil.rmtree(folder)
    shutil.copytree(f"{golden}/mid_lora", folder)
    refused("no base", "does not exist", base=os.path.join(work, "nowhere"))
    refused("a merged base", "merged folder already", base=os.path.join(work, "mid_lora"))
    refused("an adapter as base", "is an adapter", base=folder)
    refused("another base's layers", "fits no weight of the base model", base=f"{golden}/tiny")
    code, _, err = tool("merge", "--base", f"{golden}/mid", "--adapter", folder, "--out", out, "--threads=-1")
    check("refused: threads", code == 2 and "--threads" in err, err)
    for missing in ("--base", "--adapter", "--out"):
        flags = {"--base": f"{golden}/mid", "--adapter": folder, "--out": out}
        del flags[missing]
        code, _, err = tool("merge", *[part for pair in flags.items() for part in pair])
        check(f"refused: no {missing}", code == 2 and missing in err, err)
    # What only warns.
    write_json({**good_config, "base_model_name_or_path": "Some/Other"}, folder, "adapter_config.json")
    code, _, err = tool("merge", "--base", f"{golden}/mid", "--adapter", folder, "--out", out)
    check("another base's name only warns", code == 0 and "Some/Other" in err, err)
    shutil.rmtree(out)


def full_disk(tool, golden, work):
    """A small file system of its own, where the system allows to mount one: too small for the tensors, for what
    follows them, and large enough."""
    disk, base = os.path.join(work, "disk"), os.path.join(work, "full-base")
    os.mkdir(disk)
    shutil.copytree(f"{golden}/mid", base)
    with open(os.path.join(base, "tokenizer.json"), "wb") as file:
        file.write(bytes(11_000_000))  # as large as the tensors; a merge only copies it
    script = ('mount -t tmpfs -o size=$1 none "$2" || exit 77; "$3" merge --base "$4" --adapter "$5" --out "$2/out"; '
              'status=$?; echo "left: $(ls -A "$2")"; umount "$2"; exit $status')
    for size, fits in (("4m", False), ("12m", False), ("20m", False), ("40m", True)):
        done = subprocess.run(["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", script, "sh", size, disk,
                               tool.program, base, f"{golden}/mid_lora"],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 77 or "unshare:" in done.stderr:
            print("no small file system can be mounted here: the full disk is not tested")
            return
        check(f"a disk of {size}", done.returncode == (0 if fits else 1) and
              f"left: {'out' if fits else ''}\n" in done.stdout, done.returncode, done.stdout, done.stderr)


def inputs_stay(tool, golden, work):
    """--force never replaces what is read: the base, the adapter, or a folder that holds one."""
    top = os.path.join(work, "inputs")
    base, adapter = os.path.join(top, "base"), os.path.join(top, "base", "text")
    shutil.copytree(f"{golden}/mid", base)
    shutil.copytree(f"{golden}/mid_lora", adapter)
    os.symlink(base, os.path.join(work, "inputs-link"))
    before = {path: sorted(os.listdir(path)) for path in (top, base, adapter)}
    for out in (base, base + "/", adapter, top, os.path.join(base, "new"), os.path.join(work, "inputs-link"),
                os.path.join(base, "..", "base", "text", ".")):
        for more in ((), ("--force",)):
            code, _, err = tool("merge", "--base", base, "--adapter", adapter, "--out", out, *more)
            check(f"{out} {more} is refused", code == 2 and "name another folder" in err, code, err)
    check("the inputs are as they were", before == {path: sorted(os.listdir(path)) for path in before})


def same_bytes(tool, golden, work):
    """The marker, too, does not depend on the threads."""
    first = None
    for threads in (1, 2, 5, 5, 5):
        out = os.path.join(work, "same")
        tool("merge", "--base", f"{golden}/mid", "--adapter", f"{golden}/mid_lora", "--out", out, "--force",
             "--threads", threads)
        hashes = {name: sha256(os.path.join(out, name)) for name in os.listdir(out)}
        first = first or hashes
        check(f"the same bytes with {threads} threads", hashes == first)


def safety(tool, golden, work, big_base, big_adapter):
    """Existing folders, signals, a disk that takes no more."""
    out = os.path.join(work, "safe")
    arguments = ("merge", "--base", f"{golden}/mid", "--adapter", f"{golden}/mid_lora", "--out", out)
    os.mkdir(out)
    check("an empty folder is taken", tool(*arguments)[0] == 0)
    good = sha256(os.path.join(out, "model.safetensors"))
    with open(os.path.join(out, "mine"), "w", encoding="utf-8") as file:
        file.write("kept")
    code, _, err = tool(*arguments)
    check("a folder in use is refused", code == 2 and "--force" in err and os.path.exists(os.path.join(out, "mine")), err)
    code, _, err = tool(*arguments, "--force")
    check("--force replaces it", code == 0 and not os.path.exists(os.path.join(out, "mine"))
          and sha256(os.path.join(out, "model.safetensors")) == good, err)
    check("and nothing else stays", left_over(work, "safe") == ["safe"], os.listdir(work))
    check("--force with a failing merge keeps the old one", tool(
        "merge", "--base", f"{golden}/tiny", "--adapter", f"{golden}/mid_lora", "--out", out, "--force")[0] == 1
          and sha256(os.path.join(out, "model.safetensors")) == good)
    file_path = os.path.join(work, "a-file")
    with open(file_path, "w", encoding="utf-8"):
        pass
    check("a file is refused", tool(*arguments[:-1], file_path)[0] == 2)
    check("even with --force", tool(*arguments[:-1], file_path, "--force")[0] == 2)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    target = os.path.join(work, "full")
    code, _, err = tool(*arguments[:-1], target, preexec_fn=limit)
    check("a disk that takes no more", code == 1 and "model.safetensors" in err and left_over(work, "full") == [],
          code, err, os.listdir(work))

    # As `ulimit -f` sets it in a shell, where the signal is not ignored.
    code, _, err = tool(*arguments[:-1], target,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    check("a limit on files", code == 1 and "model.safetensors" in err and left_over(work, "full") == [],
          code, err, os.listdir(work))
    full_disk(tool, golden, work)
    inputs_stay(tool, golden, work)

    stopped = finished = 0
    target = os.path.join(work, "stopped")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for delay in (0.0, 0.01, 0.03, 0.06, 0.1, 0.2):
            process = subprocess.Popen([tool.program, "merge", "--base", big_base, "--adapter", big_adapter, "--out", target],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env=ENVIRONMENT)
            time.sleep(delay)
            process.send_signal(number)
            code = process.wait(120)
            if code == 0:
                finished += 1
                check("finished before the signal", tool("verify", target)[0] == 0)
                shutil.rmtree(target)
            else:
                stopped += 1
                check(f"signal {number} after {delay}", code == -number and left_over(work, "stopped") == [],
                      code, os.listdir(work))
    check("some were stopped", stopped > 2, stopped, finished)


def revisions(tool, golden, work):
    commit, other = "0123456789abcdef" * 2 + "01234567", "f" * 40
    pinned = "16818868b0cc7813808aae4e87b417657046ab79"
    downloads = os.path.join(work, "downloads")
    shutil.copytree(f"{golden}/mid", os.path.join(downloads, "base"))
    shutil.copytree(f"{golden}/mid_lora", os.path.join(downloads, "adapters/text"))

    def note(folder, name, revision):
        path = os.path.join(downloads, folder, ".cache/huggingface/download", name + ".metadata")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{revision}\nsome-etag\n1700000000.0\n")

    def marker(*flags, base=os.path.join(downloads, "base"), adapter=os.path.join(downloads, "adapters/text")):
        out = os.path.join(work, "with-revisions")
        code, _, err = tool("merge", "--base", base, "--adapter", adapter, "--out", out, "--force", *flags)
        check(f"merge {flags}", code == 0, err)
        return read_json(out, MARKER)

    note("base", "config.json", commit)
    note("adapters", "text/adapter_config.json", other)
    got = marker()
    check("revisions as huggingface_hub notes them", got["base"]["revision"] == commit
          and got["adapter"]["revision"] == other, got)
    check("another adapter's revision in the id", got["model"] == f"cua-ai/cua-s1-4b-0.2@{other}:text", got["model"])
    got = marker("--base-revision", "main", "--adapter-revision", pinned)
    check("flags win", got["base"]["revision"] == "main" and got["adapter"]["revision"] == pinned, got)
    check("the pinned adapter needs no id", "model" not in got, got.get("model"))
    check("--model-id", marker("--model-id", "mine/1")["model"] == "mine/1")
    snapshot = os.path.join(downloads, "hub/snapshots", commit)
    shutil.copytree(f"{golden}/mid", snapshot)
    check("the shared cache's folder", marker(base=snapshot)["base"]["revision"] == commit)


def verification(tool, golden, work, lib, reference, tokenizer):
    good = os.path.join(work, "mid_lora")
    code, said, err = tool("verify", good)
    check("verify: good", code == 0 and "3 files are as the merge wrote them" in said and "finite" in said, said, err)
    code, said, err = tool("verify", good, "--reference", reference, "--cuda-lib", lib)
    check("verify: scores", code == 0 and "scores:" in said, said, err)
    with open(reference, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    wrong = os.path.join(work, "wrong.jsonl")

    def rewrite(lines):
        with open(wrong, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    rewrite([*lines[:2], {**lines[2], "probabilities": lines[2]["probabilities"][::-1]}])
    code, _, err = tool("verify", good, "--reference", wrong, "--cuda-lib", lib)
    check("verify: a wrong score", code == 1 and "line 3" in err, code, err)
    for name, line in (("no prompt", {"probabilities": [1.0]}), ("no probabilities", {"ids": [1]}),
                       ("ids of text", {"ids": ["x"], "probabilities": [1.0]}),
                       ("27 options", {"ids": [1], "probabilities": [0.1] * 27})):
        rewrite([line])
        code, _, err = tool("verify", good, "--reference", wrong, "--cuda-lib", lib)
        check(f"verify: reference with {name}", code == 1 and "line 1" in err, code, err)
    rewrite([])
    check("verify: an empty reference", tool("verify", good, "--reference", wrong, "--cuda-lib", lib)[0] == 1)

    def broken(name, needle, change, source=good):
        folder = os.path.join(work, "broken")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        change(folder)
        code, _, err = tool("verify", folder)
        check(f"verify: {name}", code == 1 and needle in err, code, err)

    def truncate(folder):
        with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
            file.truncate(os.path.getsize(os.path.join(folder, "model.safetensors")) - 2)

    def flip(folder):
        with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
            file.seek(-1001, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1001, os.SEEK_END)
            file.write(bytes([byte ^ 1]))

    def swap(folder):
        tensors = tensor_file.read(os.path.join(folder, "model.safetensors"))
        a, b = (f"model.layers.{i}.mlp.down_proj.weight" for i in (0, 1))
        tensors[a], tensors[b] = tensors[b], tensors[a]
        tensor_file.write(os.path.join(folder, "model.safetensors"), tensors)

    def poison(folder):
        tensors = tensor_file.read(os.path.join(folder, "model.safetensors"))
        dtype, shape, data = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (dtype, shape, data[:6] + b"\xc0\x7f" + data[8:])
        tensor_file.write(os.path.join(folder, "model.safetensors"), tensors)
        write_json({"format": "cua-s1-text-merged/1"}, folder, MARKER)

    def renumber(folder):
        with open(os.path.join(tokenizer, "tokenizer.json"), encoding="utf-8") as file:
            text = file.read()
        head, tail = text.split('"vocab"', 1)
        a, b = ('"A": 32', '"B": 33') if '"A": 32' in tail else ('"A":32', '"B":33')
        tail = tail.replace(a, a[:-2] + "33", 1).replace(b, b[:-2] + "32", 1)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            file.write(head + '"vocab"' + tail)

    broken("a cut file", "bytes", truncate)
    broken("a flipped bit", "SHA-256", flip)
    broken("swapped tensors", "SHA-256", lambda f: (
        swap(f), _same_size(os.path.join(f, "model.safetensors"), os.path.join(good, "model.safetensors"))))
    broken("a changed config", "config.json", lambda f: write_json({**read_json(f, "config.json"), "x": 1}, f, "config.json"))
    broken("a missing file", "generation_config.json", lambda f: os.remove(os.path.join(f, "generation_config.json")))
    broken("another shard", "not one of the files", lambda f: shutil.copy(
        os.path.join(f, "model.safetensors"), os.path.join(f, "model-00001-of-00001.safetensors")))
    broken("no marker", MARKER, lambda f: os.remove(os.path.join(f, MARKER)))
    broken("NaN", "norm.weight", poison)
    broken("a damaged marker", "files", lambda f: write_json(
        {**read_json(f, MARKER), "files": {"model.safetensors": {}}}, f, MARKER))
    broken("another tokenizer's letters", "letter A", renumber, source=os.path.join(work, "lettered"))
    code, _, err = tool("verify", os.path.join(work, "nowhere"))
    check("verify: nothing there", code == 1 and "does not exist" in err, err)
    check("verify: no folder", tool("verify")[0] == 2)
    check("verify: two folders", tool("verify", good, good)[0] == 2)


def _same_size(path, wanted):
    """Pads the header of a file so that only its hash can tell it from another."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    short = os.path.getsize(wanted) - len(data)
    if short < 0:
        text = json.dumps(json.loads(data[8:8 + length]), separators=(",", ":")).encode()
        short = os.path.getsize(wanted) - 8 - len(text) - (len(data) - 8 - length)
        data = data[:8] + text + data[8 + length:]
        length = len(text)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", length + short) + data[8:8 + length] + b" " * short + data[8 + length:])


def pinned(tool, golden, work):
    folder, lock = os.path.join(work, "mid"), os.path.join(work, "lock.json")
    shutil.copytree(f"{golden}/mid", folder)
    os.makedirs(os.path.join(folder, "text"))
    shutil.copy(f"{golden}/mid_lora/adapter_config.json", os.path.join(folder, "text"))
    files = {}
    for name in ("config.json", "model.safetensors", "text/adapter_config.json"):
        path = os.path.join(folder, name)
        files[name] = {"size": os.path.getsize(path), "sha256": sha256(path)}
    files["README.md"] = files["multimodal/adapter_config.json"] = {"size": 1, "sha256": "0" * 64}

    def verify(changes=None, schema="cua-s1/weights-lock/v1", target=folder, text=None):
        artifact = {"name": "mid", "repo_id": "a/mid", "revision": "r", "role": "base", "files": {**files, **(changes or {})}}
        write_json({"schema": schema, "artifacts": [artifact]}, lock)
        if text is not None:
            with open(lock, "w", encoding="utf-8") as file:
                file.write(text)
        return tool("verify", "--pinned", lock, target)

    code, said, err = verify()
    check("pinned: good", code == 0 and "3 of 5 files match" in said and "README.md: not downloaded" in said, said, err)
    code, said, err = verify({"config.json": {**files["config.json"], "sha256": "0" * 64}})
    check("pinned: another hash", code == 1 and "WRONG: config.json" in said and "SHA-256" in said, said, err)
    code, said, err = verify({"model.safetensors": {**files["model.safetensors"], "size": 2 ** 40}})
    check("pinned: not complete", code == 1 and "not complete" in said, said, err)
    code, said, err = verify({"more.safetensors": {"size": 1, "sha256": "0" * 64}})
    check("pinned: missing", code == 1 and "more.safetensors: is missing" in said, said, err)
    renamed = os.path.join(work, "another-name")
    os.rename(folder, renamed)
    check("pinned: found by its files", verify(target=renamed)[0] == 0)
    for name, needle, arguments in (
            ("another schema", "schema", {"schema": "x"}), ("no JSON", "lock.json", {"text": "{"}),
            ("no hash", "sha256", {"changes": {"config.json": {"size": 1}}}),
            ("a size below 0", "size", {"changes": {"config.json": {"size": -1, "sha256": "0" * 64}}}),
            ("a path that leads out", "leads elsewhere", {"changes": {"../x": {"size": 1, "sha256": "0" * 64}}})):
        code, said, err = verify(target=renamed, **arguments)
        check(f"pinned: {name}", code == 1 and needle in err, code, said, err)
    empty = os.path.join(work, "empty")
    os.mkdir(empty)
    code, _, err = tool("verify", "--pinned", empty)
    check("pinned: the built-in lock names its downloads", code == 1 and "Qwen3.5-4B" in err and "cua-s1-4b-0.2" in err, err)
    pretended = os.path.join(work, "Qwen3.5-4B")
    shutil.copytree(f"{golden}/mid", pretended)
    code, said, err = tool("verify", "--pinned", pretended)
    check("pinned: not the public base", code == 1 and "WRONG: config.json" in said
          and "851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a" in said, said, err)


def info(tool, golden, work):
    for folder, kind, words in ((os.path.join(work, "mid_lora"), "merged", "which the worker takes"),
                                (f"{golden}/wide", "base", "base model"),
                                (f"{golden}/mid_lora", "adapter", "adapter of rank 16")):
        code, said, err = tool("info", folder)
        check(f"info: {kind}", code == 0 and words in said and not err, said, err)
        code, said, err = tool("info", folder, "--json")
        about = json.loads(said)
        check(f"info --json: {kind}", code == 0 and about["kind"] == kind and about["storage"]["tensors"] > 0, about)
    code, said, _ = tool("info", f"{golden}/wide", "--json")
    about = json.loads(said)
    check("info: dimensions", about["layers"] == 4 and about["hidden"] == 192 and about["storage"]["dtypes"]["F32"] > 0,
          about)
    check("info: nothing there", tool("info", os.path.join(work, "nowhere"))[0] == 1)
    check("info: no model", tool("info", work)[0] == 1)
    check("info: no folder", tool("info")[0] == 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--export", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    tool = Tool(os.path.abspath(options.export))
    lib = os.path.abspath(options.lib)
    golden, tokenizer = os.path.join(options.data, "golden"), os.path.join(options.data, "tokenizer")
    with tempfile.TemporaryDirectory() as work:
        merged_once(tool, golden, work)
        reference = scores(lib, golden, work)
        layouts(tool, work)
        arithmetic(tool, golden, work)
        same_bytes(tool, golden, work)
        refusals(tool, golden, work)
        # Large enough to be stopped half-way, and with a tokenizer.
        big_base, big_adapter = os.path.join(work, "big-base"), os.path.join(work, "big-adapter")
        check("a larger base", tool("synthetic", "--shape", "wide", "--layout", "public", "--tokenizer", tokenizer,
                                    "--out", big_base)[0] == 0)
        check("its adapter", tool("synthetic", "--shape", "wide", "--adapter", "--out", big_adapter)[0] == 0)
        safety(tool, golden, work, big_base, big_adapter)
        lettered = os.path.join(work, "lettered")
        code, _, err = tool("merge", "--base", big_base, "--adapter", big_adapter, "--out", lettered)
        check("tokenizer files come along", code == 0 and "tokenizer" not in err
              and {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= set(os.listdir(lettered)), err)
        code, said, err = tool("verify", lettered)
        check("verify: letters", code == 0 and "A to Z are tokens 32 to 57" in said, said, err)
        marker = read_json(lettered, MARKER)
        marker.pop("files")
        write_json(marker, lettered, MARKER)
        revisions(tool, golden, work)
        verification(tool, golden, work, lib, reference, tokenizer)
        pinned(tool, golden, work)
        info(tool, golden, work)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
