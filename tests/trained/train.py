#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demonstration model from nothing and writes its merged folder, card and log.

usage: train.py --out FOLDER [--seconds N] [--seed N] [--smoke]

One GPU (an H200 needs 9 minutes for everything with the default of seconds), torch and Transformers
5.17. FOLDER gets model/ (the checkpoint with its card) and log.txt. --smoke makes a very small model
with a few steps on the CPU, to see that all of it works. --device cpu makes a smaller model, by a
curriculum for few tokens: 71 minutes on two cores with AMX, and it falls short of the bars of
evaluate.py. --resume FILE goes on from the state.pt that each run leaves in FOLDER.
"""
import argparse
import json
import math
import os
import queue
import sys
import threading
import time

try:
    import numpy as np
    import tokenizers  # noqa: F401
    import torch
    import torch.nn.functional as F
    import transformers
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

import byte_pairs
import decisions
import packing
from forward import Forward, Shape, attention, parameters

MODEL_ID = "cua-demo-1"
AUXILIARY = {"choice": 0.3, "element": 0.2, "language": 0.2}


class Log:
    def __init__(self, path):
        self.file = open(path, "w")
        self.start = time.monotonic()

    def __call__(self, *parts):
        line = f"{time.monotonic() - self.start:6.1f} " + " ".join(str(part) for part in parts)
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def orthogonal(g):
    """Near to the orthogonal factor of each matrix, by five Newton-Schulz steps (Muon)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * s @ s) @ x
    return x.transpose(1, 2) if tall else x


class Muon:
    """Matrices of the same shape together."""

    def __init__(self, parameters, momentum=0.95, decay=0.02):
        groups = {}
        for p in parameters:
            groups.setdefault(p.shape, []).append(p)
        self.groups = [(ps, torch.zeros(len(ps), *ps[0].shape, device=ps[0].device)) for ps in groups.values()]
        self.momentum, self.decay = momentum, decay

    @torch.no_grad()
    def step(self, rate):
        for ps, buffer in self.groups:
            g = torch.stack([p.grad for p in ps])
            buffer.lerp_(g, 1 - self.momentum)
            update = orthogonal(g.lerp(buffer, self.momentum)).float()
            scale = max(1, ps[0].shape[0] / ps[0].shape[1]) ** 0.5
            torch._foreach_mul_(ps, 1 - rate * self.decay)
            torch._foreach_add_(ps, list(update.unbind()), alpha=-rate * scale)


def on_device(batch, device):
    moved = {}
    for name, value in batch.items():
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
            if name in ("tokens", "position"):
                value = value.to(torch.int32)
            if device != "cpu":
                value = value.pin_memory().to(device, non_blocking=True)
        moved[name] = value
    return moved


class Supply:
    """Batches on the device, moved there by a thread."""

    def __init__(self, feed, device):
        self.ready = queue.Queue(maxsize=4)
        self.stopped = False

        def move():
            while not self.stopped:
                try:
                    batch = feed.queue.get(timeout=1)
                except queue.Empty:
                    continue
                self.ready.put(on_device(batch, device))
        threading.Thread(target=move, daemon=True).start()


def choice_loss(scores, count, right):
    """Cross entropy over each row's first `count` scores, and which rows are right."""
    scores = scores.masked_fill(torch.arange(scores.shape[1], device=scores.device) >= count[:, None], -1e9)
    return F.cross_entropy(scores, right), scores.argmax(1) == right


class Trainer:
    def __init__(self, shape, seed, device, compiled, dtype):
        self.shape, self.device, self.dtype = shape, device, dtype
        self.p = parameters(shape, seed, device)
        self.heads = {name: torch.zeros(shape.hidden, device=device, requires_grad=True) for name in ("choice", "element")}
        self.forward = Forward(shape, compiled)
        self.middle, self.late = shape.layers // 2, shape.layers - 1
        small = ("in_proj_a", "in_proj_b", "embed_tokens")
        matrices = [n for n, t in self.p.items() if t.dim() == 2 and not any(s in n for s in small)]
        self.muon = Muon([self.p[n] for n in matrices])
        rest = [t for n, t in self.p.items() if n not in matrices]
        self.adam = torch.optim.AdamW(rest + list(self.heads.values()), lr=1e-3, betas=(0.9, 0.95), weight_decay=0, eps=1e-10,
                                      fused=device != "cpu")
        self.every = rest + [self.p[n] for n in matrices] + list(self.heads.values())

    def run(self, batch, taps=()):
        return self.forward(self.p, batch["tokens"], batch["position"], (batch["starts"], batch["longest"]), self.dtype, taps)

    def answers(self, batch, hidden):
        letters = self.p["model.embed_tokens.weight"][32:58]
        scores = hidden.flatten(0, 1)[batch["last"]].float() @ letters.T
        return choice_loss(scores, batch["count"], batch["answer"])

    def loss(self, batch, language):
        hidden, tapped = self.run(batch, (self.middle, self.late))
        main, right = self.answers(batch, hidden)

        def scores(layer, places, head):
            x = tapped[layer].flatten(0, 1)[places].float()
            return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)) @ self.heads[head]

        choice, _ = choice_loss(scores(self.late, batch["ends"], "choice"), batch["count"], batch["answer"])
        acting = batch["target"] >= 0
        # Rows without an element in the state count as one score, which is certain.
        element, _ = choice_loss(scores(self.middle, batch["elements"], "element"), batch["elements_count"].clamp(min=1),
                                 batch["target"].clamp(min=0))
        element = element * len(acting) / acting.sum().clamp(min=1)
        total = main + AUXILIARY["choice"] * choice + AUXILIARY["element"] * element
        parts = [main, choice, element]
        if language:
            rows = max(1, len(batch["tokens"]) // (8 if self.device == "cuda" else 2))
            logits = hidden[:rows, :-1].float() @ self.p["model.embed_tokens.weight"].T
            following = batch["tokens"][:rows, 1:].long().masked_fill(batch["position"][:rows, 1:] == 0, -100)
            lm = F.cross_entropy(logits.flatten(0, 1), following.flatten())
            total = total + language * lm
            parts.append(lm)
        return total, parts, right

    def step(self, batch, muon_rate, adam_rate, language):
        total, parts, right = self.loss(batch, language)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.every, 1.0)
        self.muon.step(muon_rate)
        for group in self.adam.param_groups:
            group["lr"] = adam_rate
        self.adam.step()
        for t in self.every:
            t.grad = None
        return torch.stack([part.detach() for part in parts[:3]]), right

    def keep(self, path):
        """All that load() needs to go on."""
        torch.save({"p": self.p, "heads": self.heads, "muon": [buffer for _, buffer in self.muon.groups],
                    "adam": self.adam.state_dict()}, path)

    @torch.no_grad()
    def load(self, path):
        kept = torch.load(path, map_location=self.device)
        for mine, theirs in ((self.p, kept["p"]), (self.heads, kept["heads"])):
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
        for (_, buffer), theirs in zip(self.muon.groups, kept["muon"]):
            buffer.copy_(theirs)
        self.adam.load_state_dict(kept["adam"])

    def accuracy(self, batches):
        """{name: share of right answers}; with gradients on, as the compiled code is made for them."""
        found = {}
        for name, batch in batches:
            batch = on_device(batch, self.device)
            hidden, _ = self.run(batch)
            _, right = self.answers(batch, hidden.detach())
            for kind in batch["kind"].unique().tolist():
                hits = right[batch["kind"] == kind]
                total = found.setdefault((name, decisions.KINDS[kind]), [0, 0])
                total[0] += hits.sum().item()
                total[1] += len(hits)
        return {key: hits / count for key, (hits, count) in found.items()}


def next_stage(stage, share, progress):
    """What a slow machine teaches next (see packing.lesson), by the share of right answers; in the
    second half whatever that is."""
    if share > (0.9 if stage < 0 else 0.8):
        stage = 0 if stage < 0 else stage + 0.012
    return max(stage, progress - 0.5) if progress > 0.5 else stage


def table(accuracy):
    names = list(dict.fromkeys(name for name, _ in accuracy))
    rows = [" " * 14 + "".join(f"{kind[:9]:>10}" for kind in decisions.KINDS)]
    for name in names:
        rows.append(f"{name:14}" + "".join(f"{100 * accuracy.get((name, kind), 0):10.1f}" for kind in decisions.KINDS))
    return "\n" + "\n".join(rows)


def check_against_transformers(trainer, folder, log):
    """Packed rows through the (compiled) fp32 forward against Transformers, prompt by prompt."""
    tf32 = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    encoder = packing.Encoder(folder)
    pool = [encoder.encode(made) for kind in ("name", "paraphrase", "id-tree") for made in decisions.decisions(7, kind, "words", 3, 2, 6)]
    with torch.no_grad():
        model = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**trainer.shape.config())).to(trainer.device).eval()
        missing = model.load_state_dict({n: t.detach() for n, t in trainer.p.items()}, strict=False)
        assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys, missing
        _, batch = next(iter([("", packing.pack(pool, 2, 2048))]))
        batch = on_device(batch, trainer.device)
        trainer.dtype, before = torch.float32, trainer.dtype
        hidden, _ = trainer.run(batch)
        trainer.dtype = before
        ours = (hidden @ trainer.p["model.embed_tokens.weight"].T).flatten(0, 1)
        starts = batch["starts"].tolist()
        worst = scale = 0
        for begin, end in zip(starts, starts[1:]):
            ids = batch["tokens"].flatten()[begin:end].long()[None]
            theirs = model(ids).logits[0]
            worst = max(worst, (theirs - ours[begin:end]).abs().max().item())
            scale = max(scale, theirs.std().item())
    torch.set_float32_matmul_precision(tf32)
    log(f"fp32 logits of the training forward against Transformers: largest difference {worst:.1e}, deviation of the logits {scale:.2f}")
    assert worst < 3e-4 * max(1, scale), worst


def save(trainer, out, card):
    """The merged folder; its tokenizer is there already."""
    config = transformers.Qwen3_5TextConfig(**trainer.shape.config())
    model = transformers.Qwen3_5ForCausalLM(config)
    model.load_state_dict({n: t.detach().cpu() for n, t in trainer.p.items()}, strict=False)
    model.to(torch.bfloat16).save_pretrained(out)
    if os.path.exists(os.path.join(out, "generation_config.json")):
        os.remove(os.path.join(out, "generation_config.json"))
    os.chmod(os.path.join(out, "model.safetensors"), 0o644)
    with open(os.path.join(out, "cua_s1_export.json"), "w") as file:
        json.dump({"format": "cua-s1-text-merged/1", "model": MODEL_ID,
                   "note": "a small demonstration model, trained on generated decisions; not Cua-S1"}, file)
        file.write("\n")
    with open(os.path.join(out, "README.md"), "w") as file:
        file.write(card)


def card_text(shape, count, seed, steps, tokens, seconds, prompts, device, versions):
    return f"""# {MODEL_ID}: the demonstration model

A small model in the architecture of Cua-S1 (Qwen3.5 text: Gated DeltaNet and full attention), trained from nothing on
generated decisions, so that a clone of this repository can show a real decision on any CPU. **It is not Cua-S1**: it knows
the words and forms of its generator and little else. Do not act on its answers.

| | |
|---|---|
| shape | {count:,} parameters: hidden {shape.hidden}, {shape.layers} layers ({shape.kinds.count("full_attention")} with full attention), {shape.heads} query and {shape.kv_heads} KV heads of {shape.head_dim}, {shape.key_heads} key and {shape.value_heads} value heads of {shape.gdn_dim} in Gated DeltaNet, MLP {shape.mlp}, vocabulary {shape.vocabulary:,}, embeddings tied |
| data | generated by `tests/trained/decisions.py`; nothing else, no text of anybody's |
| training | `tests/trained/train.py --seed {seed}`: {steps:,} steps, {prompts:,} decisions, {tokens:,} tokens, {seconds:.0f} s on one {device} ({versions}); the number of steps depends on the machine's speed |
| license | Apache-2.0, as the repository |

<!-- accuracy -->
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=530, help="of all, but for the checks at the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--resume")
    parser.add_argument("--rows", type=int, help="64; 8 on the CPU")
    parser.add_argument("--length", type=int, help="of a row, in tokens: 1536; 1024 on the CPU")
    parser.add_argument("--muon", type=float, default=0.02)
    parser.add_argument("--adam", type=float, default=0.003)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--profile", action="store_true", help="print where a step's time goes")
    arguments = parser.parse_args()
    smoke = arguments.smoke
    os.makedirs(arguments.out, exist_ok=True)
    log = Log(os.path.join(arguments.out, "log.txt"))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    device = "cpu" if smoke else arguments.device
    slow = device == "cpu" and not smoke
    rows, length = (4, 512) if smoke else (arguments.rows or (8 if slow else 64), arguments.length or (1024 if slow else 1536))

    tokenizer_folder = os.path.join(arguments.out, "model")
    tokenizer = byte_pairs.make(tokenizer_folder, 1200 if smoke else byte_pairs.SIZE, 300 if smoke else 12000)
    log(f"tokenizer of {tokenizer.get_vocab_size()} tokens")
    feed = packing.Feed(tokenizer_folder, arguments.seed, rows, length, 1 if device == "cpu" else max(1, os.cpu_count() - 1))
    shape = (Shape(vocabulary=1200, hidden=64, layers=4, head_dim=32, gdn_dim=16, mlp=96) if smoke else
             Shape(layers=4, every=2, mlp=448) if slow else Shape())
    torch.set_float32_matmul_precision("highest" if smoke else "high")
    trainer = Trainer(shape, arguments.seed, device, not smoke and not arguments.eager, torch.float32 if smoke else torch.bfloat16)
    if arguments.resume:
        trainer.load(arguments.resume)
    if slow and not arguments.resume:
        feed.progress.value = -1
        feed.headed.value = 0.1
    count = sum(t.numel() for t in trainer.p.values())
    log(f"{count:,} parameters, torch {torch.__version__}, {device}")
    sets = []
    for split, most in (("seen", 26), ("words", 26), ("templates", 10), ("both", 10)):
        made = [one for kind in decisions.KINDS for one in decisions.decisions("progress", kind, split, 1 if smoke else 80, most=4 if smoke else most)]
        sets.append((f"{split} 2-{most}", made))
    checks = list(packing.fixed_batches(tokenizer_folder, sets, rows, length))
    log(f"{len(checks)} batches to look at the progress")
    supply = Supply(feed, device)

    def synchronize():
        if device == "cuda":
            torch.cuda.synchronize()

    if device == "cuda":
        check_attention(log)
    begun = None
    steps = tokens = prompts = 0
    recent, hits = [], []
    reports = [] if smoke else [0.25, 0.5, 0.75]
    shown = time.monotonic()
    warm_up = 0 if smoke else 3
    while True:
        batch = supply.ready.get()
        if steps == warm_up:
            synchronize()
            begun = time.monotonic()
            log("compiled")
            if arguments.profile:
                profile(trainer, batch, log)
                begun = time.monotonic()
            seconds = max(5, arguments.seconds - (begun - log.start))
            tokens = prompts = 0
        progress = 0 if begun is None else (steps / 6 if smoke else (time.monotonic() - begun) / seconds)
        if progress >= 1:
            break
        if slow:
            feed.headed.value = 1 if progress >= 0.5 or arguments.resume else 0.1
        else:
            feed.progress.value = 1 if arguments.resume else progress
        rise, fall = min(1, (steps + 1) / 100), min(1, (1 - progress) / 0.55)
        rate = rise * max(fall, 0.01)
        language = AUXILIARY["language"] if progress < 0.8 else 0
        if slow and not arguments.resume and progress < 0.45:
            language = 0.5  # names that come again are what it learns to find first
        loss, right = trainer.step(batch, arguments.muon * rate, arguments.adam * rate, language)
        steps += 1
        tokens += batch["tokens_used"]
        prompts += len(batch["last"])
        recent.append(loss)
        hits.append(right)
        if time.monotonic() - shown > 10 or smoke:
            synchronize()
            shown = time.monotonic()
            main_loss, choice, element = torch.stack(recent).mean(0).tolist()
            speed = tokens / max(1e-9, shown - (begun or shown - 1))
            log(f"{100 * progress:5.1f} % step {steps} loss {main_loss:.3f} choice {choice:.3f} element {element:.3f} "
                f"right {100 * torch.cat(hits).float().mean().item():.1f} % {speed / 1e6:.2f} M tokens/s, waiting {feed.queue.qsize()}")
            assert math.isfinite(main_loss), "the loss is not finite"
            if slow:
                feed.progress.value = next_stage(feed.progress.value, torch.cat(hits).float().mean().item(), progress)
            recent, hits = [], []
        if reports and progress >= reports[0]:
            reports.pop(0)
            log(table(trainer.accuracy(checks)))
    synchronize()
    seconds = time.monotonic() - begun
    supply.stopped = True
    feed.close()
    log(f"{steps} steps, {prompts:,} decisions, {tokens:,} tokens in {seconds:.0f} s")
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    text = card_text(shape, count, arguments.seed, steps, tokens, seconds, prompts, name,
                f"torch {torch.__version__}, transformers {transformers.__version__}")
    save(trainer, tokenizer_folder, text)
    trainer.keep(os.path.join(arguments.out, "state.pt"))
    log("saved")
    # As saved: what was trained, rounded to bf16.
    with torch.no_grad():
        for t in trainer.p.values():
            t.copy_(t.to(torch.bfloat16).float())
    log(table(trainer.accuracy(checks)))
    check_against_transformers(trainer, tokenizer_folder, log)
    return 0


def check_attention(log):
    """The kernel for prompts of varying lengths against attention with a mask."""
    generator = torch.Generator("cuda").manual_seed(1)
    lengths = [100, 28, 300, 84, 511, 1]
    position = torch.cat([torch.arange(n, device="cuda") for n in lengths]).view(2, 512)
    starts = torch.tensor([0] + lengths, device="cuda").cumsum(0).int()
    found = []
    for varying in (True, False):
        generator.manual_seed(1)
        q, k, v = (torch.randn(2, 512, 2, 256, device="cuda", generator=generator).bfloat16().requires_grad_() for _ in range(3))
        o = attention(q, k, v, position, (starts, max(lengths)), varying)
        o.float().square().sum().backward()
        found.append((o, q.grad, k.grad, v.grad))
    errors = [((a - b).float().norm() / b.float().norm()).item() for a, b in zip(*found)]
    log("attention over varying lengths against a mask:", " ".join(f"{e:.1e}" for e in errors))
    assert max(errors) < 0.02, errors


def profile(trainer, batch, log):
    from torch.profiler import ProfilerActivity
    for _ in range(2):
        trainer.step(batch, 0, 0, 0.1)
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(10):
        trainer.step(batch, 0, 0, 0.1)
    torch.cuda.synchronize()
    log(f"a step without waiting for data: {(time.monotonic() - start) * 100:.1f} ms")
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as run:
        for _ in range(3):
            trainer.step(batch, 0, 0, 0.1)
        torch.cuda.synchronize()
    log(run.key_averages().table(sort_by="self_cuda_time_total", row_limit=32, max_name_column_width=60))


if __name__ == "__main__":
    sys.exit(main())
