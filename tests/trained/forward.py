# SPDX-License-Identifier: Apache-2.0
"""A training forward of the Qwen3.5 text architecture over rows in which prompts are packed.

Equal to Transformers' classes up to rounding (train.py checks it in every run), and several times as
fast: everything between the recurrences is compiled, the recurrence over 64-token chunks is one
matrix product a chunk, and where a prompt ends inside a row the state decays to nothing, the
convolution does not look back and attention is masked.

Recurrence: within a chunk, with T = (I + tril(beta k k^T decay))^-1, U = T beta v and W = T beta e^G k;
from chunk to chunk S' = (e^G I - K^T W) S + K^T U, an affine map that needs no token.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

CHUNK = 64
RESET = -30.0  # log decay at a prompt's first token: e^-30 of the last prompt's state is left


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 2560
    hidden: int = 256
    layers: int = 8
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    key_heads: int = 1
    value_heads: int = 2
    gdn_dim: int = 128
    mlp: int = 416
    every: int = 4  # layers of which the last has full attention
    theta: float = 1e7
    eps: float = 1e-6

    @property
    def kinds(self):
        return ["full_attention" if i % self.every == self.every - 1 else "linear_attention" for i in range(self.layers)]

    @property
    def rotary(self):
        return self.head_dim // 4

    def config(self):
        """Arguments for Transformers' Qwen3_5TextConfig."""
        third = self.rotary // 2 // 3
        return dict(
            vocab_size=self.vocabulary, hidden_size=self.hidden, intermediate_size=self.mlp, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, head_dim=self.head_dim,
            linear_key_head_dim=self.gdn_dim, linear_value_head_dim=self.gdn_dim, linear_num_key_heads=self.key_heads,
            linear_num_value_heads=self.value_heads, linear_conv_kernel_dim=4, rms_norm_eps=self.eps, layer_types=self.kinds,
            tie_word_embeddings=True, max_position_embeddings=16384,
            rope_parameters={"rope_type": "default", "rope_theta": self.theta, "partial_rotary_factor": 0.25,
                             "mrope_interleaved": True, "mrope_section": [self.rotary // 2 - 2 * third, third, third]})


def parameters(shape, seed, device):
    """fp32 parameters under their names in a checkpoint."""
    generator = torch.Generator().manual_seed(seed)
    H, D = shape.hidden, shape.gdn_dim
    key, value = shape.key_heads * D, shape.value_heads * D
    made = {}

    def normal(name, rows, columns, scale=None):
        made[name] = torch.randn(rows, columns, generator=generator) * (scale if scale is not None else 0.5 / math.sqrt(columns))

    normal("model.embed_tokens.weight", shape.vocabulary, H, 0.04)
    made["model.norm.weight"] = torch.zeros(H)
    for i, kind in enumerate(shape.kinds):
        at = f"model.layers.{i}."
        made[at + "input_layernorm.weight"] = torch.zeros(H)
        made[at + "post_attention_layernorm.weight"] = torch.zeros(H)
        normal(at + "mlp.gate_proj.weight", shape.mlp, H)
        normal(at + "mlp.up_proj.weight", shape.mlp, H)
        normal(at + "mlp.down_proj.weight", H, shape.mlp, 0)
        if kind == "full_attention":
            normal(at + "self_attn.q_proj.weight", 2 * shape.heads * shape.head_dim, H)
            normal(at + "self_attn.k_proj.weight", shape.kv_heads * shape.head_dim, H)
            normal(at + "self_attn.v_proj.weight", shape.kv_heads * shape.head_dim, H)
            normal(at + "self_attn.o_proj.weight", H, shape.heads * shape.head_dim, 0)
            made[at + "self_attn.q_norm.weight"] = torch.zeros(shape.head_dim)
            made[at + "self_attn.k_norm.weight"] = torch.zeros(shape.head_dim)
        else:
            at += "linear_attn."
            normal(at + "in_proj_qkv.weight", 2 * key + value, H)
            normal(at + "in_proj_z.weight", value, H)
            normal(at + "in_proj_b.weight", shape.value_heads, H)
            normal(at + "in_proj_a.weight", shape.value_heads, H, 0.02)
            conv = torch.rand(2 * key + value, 1, 4, generator=generator) - 0.5
            conv[:, :, 3] += 0.5
            made[at + "conv1d.weight"] = conv
            # One head that forgets within tens of tokens, one that keeps a whole prompt.
            step = torch.logspace(math.log10(0.1), math.log10(0.002), shape.value_heads)
            made[at + "dt_bias"] = step + torch.log(-torch.expm1(-step))
            made[at + "A_log"] = torch.zeros(shape.value_heads)
            made[at + "norm.weight"] = torch.ones(D)
            normal(at + "out_proj.weight", H, value, 0)
    return {name: tensor.to(device).requires_grad_() for name, tensor in made.items()}


def rms(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * (1 + weight)).to(x.dtype)


def linear(x, weight):
    return F.linear(x, weight.to(x.dtype))


class Inverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A, from blocks of one row to the whole: no sum cancels."""

    @staticmethod
    def forward(ctx, a):
        size = a.shape[-1]
        row = torch.arange(size, device=a.device)
        result = None
        block = 1
        while block < size:
            # The lower left quarter of each diagonal block of two blocks.
            lower = (row[:, None] // (2 * block) == row // (2 * block)) & (row[:, None] // block != row // block)
            part = a * lower
            if result is None:
                result = torch.eye(size, device=a.device, dtype=a.dtype) - part
            else:
                result = torch.baddbmm(result, torch.bmm(result, part), result, alpha=-1)
            block *= 2
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        result, = ctx.saved_tensors
        across = result.transpose(1, 2)
        return -torch.bmm(torch.bmm(across, gradient), across)


class Scan(torch.autograd.Function):
    """S[0] = 0, S[c + 1] = M[c] S[c] + N[c]; all S before their chunk."""

    @staticmethod
    def forward(ctx, m, n):
        states = torch.empty_like(n)
        states[0].zero_()
        for c in range(len(n) - 1):
            torch.baddbmm(n[c], m[c], states[c], out=states[c + 1])
        ctx.save_for_backward(m, states)
        return states

    @staticmethod
    def backward(ctx, gradient):
        m, states = ctx.saved_tensors
        total = torch.zeros_like(states)  # with respect to S[c + 1]
        if len(m) > 1:
            total[-2].copy_(gradient[-1])
            for c in range(len(m) - 3, -1, -1):
                torch.baddbmm(gradient[c + 1], m[c + 1].transpose(1, 2), total[c + 1], out=total[c])
        size = states.shape
        dm = torch.bmm(total.flatten(0, 1), states.flatten(0, 1).transpose(1, 2)).view(size)
        return dm, total


def gdn_before(x, position, norm, w_qkv, w_z, w_b, w_a, conv, dt_bias, a_log, shape):
    """Up to A: q, k of [chunk, row, key head, C, D], v of value heads, z, beta, cumulative G, A."""
    B, T, _ = x.shape
    D, C = shape.gdn_dim, CHUNK
    key = shape.key_heads * D
    h = rms(x, norm, shape.eps)
    mixed = linear(h, w_qkv)
    z = linear(h, w_z)
    taps = conv[:, 0, :].to(x.dtype)
    total = mixed * taps[:, 3]
    for back in (1, 2, 3):
        earlier = F.pad(mixed, (0, 0, back, 0))[:, :T]
        total = total + torch.where((position >= back)[:, :, None], earlier, 0) * taps[:, 3 - back]
    mixed = F.silu(total)

    def chunks(y, heads):
        return y.view(B, T // C, C, heads, -1).permute(1, 0, 3, 2, 4)

    q, k, v = mixed[..., :key], mixed[..., key:2 * key], mixed[..., 2 * key:]
    q, k, v = chunks(q, shape.key_heads).float(), chunks(k, shape.key_heads).float(), chunks(v, shape.value_heads)
    q = (q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * D ** -0.5).to(x.dtype)
    k = (k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)).to(x.dtype)
    beta = chunks(torch.sigmoid(linear(h, w_b)), shape.value_heads).float()  # [..., C, 1]
    g = -torch.exp(a_log) * F.softplus(linear(h, w_a).float() + dt_bias)
    g = torch.where((position == 0)[:, :, None], RESET, g)
    decay = chunks(g, shape.value_heads).squeeze(-1).cumsum(-1)
    group = shape.value_heads // shape.key_heads
    similar = torch.matmul(k, k.transpose(-1, -2)).float().repeat_interleave(group, 2)
    lower = torch.ones(C, C, dtype=torch.bool, device=x.device).tril(-1)
    between = torch.where(lower, decay[..., :, None] - decay[..., None, :], -1e4).exp()
    return q, k, v.contiguous(), z, beta, decay, (beta * similar * between).flatten(0, 2)


def gdn_between(inverse, k, v, beta, decay, shape):
    group = shape.value_heads // shape.key_heads
    size = v.shape[:3]
    k = k.repeat_interleave(group, 2)
    inverse = inverse.view(*size, CHUNK, CHUNK).to(v.dtype)
    u = torch.matmul(inverse, (beta * v.float()).to(v.dtype))
    w = torch.matmul(inverse, (beta * decay.exp()[..., None] * k.float()).to(v.dtype))
    last = decay[..., -1:]
    kept = (k.float() * (last - decay).exp()[..., None]).to(v.dtype).transpose(-1, -2)
    identity = torch.eye(k.shape[-1], device=v.device)
    m = last.exp()[..., None] * identity - torch.matmul(kept, w).float()
    n = torch.matmul(kept, u).float()
    return u, w, m.flatten(1, 2), n.flatten(1, 2)


def gdn_after(x, q, k, u, w, decay, states, z, norm, w_out, shape):
    B, T, _ = x.shape
    group = shape.value_heads // shape.key_heads
    states = states.view(*u.shape[:3], *states.shape[-2:]).to(u.dtype)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).tril()
    between = torch.where(lower, decay[..., :, None] - decay[..., None, :], -1e4).exp()
    score = (torch.matmul(q, k.transpose(-1, -2)).float().repeat_interleave(group, 2) * between).to(u.dtype)
    q = (q.repeat_interleave(group, 2).float() * decay.exp()[..., None]).to(u.dtype)
    fresh = u - torch.matmul(w, states)
    o = torch.matmul(q, states) + torch.matmul(score, fresh)
    o = o.permute(1, 0, 3, 2, 4).reshape(B, T, shape.value_heads, -1).float()
    o = (o * torch.rsqrt(o.square().mean(-1, keepdim=True) + shape.eps)).to(x.dtype).float() * norm
    o = (o.flatten(2) * F.silu(z.float())).to(x.dtype)
    return x + linear(o, w_out)


def attention_before(x, position, norm, w_q, w_k, w_v, q_norm, k_norm, shape):
    B, T, _ = x.shape
    h = rms(x, norm, shape.eps)
    q, gate = linear(h, w_q).view(B, T, shape.heads, 2, shape.head_dim).unbind(3)
    k = linear(h, w_k).view(B, T, shape.kv_heads, shape.head_dim)
    v = linear(h, w_v).view(B, T, shape.kv_heads, shape.head_dim)
    q, k = rms(q, q_norm, shape.eps), rms(k, k_norm, shape.eps)
    half = shape.rotary // 2
    frequency = shape.theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = position[:, :, None, None].float() * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    def turned(y):
        a, b, rest = y[..., :half], y[..., half:2 * half], y[..., 2 * half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    group = shape.heads // shape.kv_heads
    return turned(q), turned(k).repeat_interleave(group, 2), v.repeat_interleave(group, 2), gate


def attention_after(x, o, gate, w_o):
    return x + linear((o * torch.sigmoid(gate)).flatten(2), w_o)


def attention(q, k, v, position, limits, varying=True):
    """Causal within each prompt; limits: where the prompts begin in the flattened rows, and the longest."""
    B, T, heads, D = q.shape
    if varying and q.is_cuda and q.dtype == torch.bfloat16:
        starts, longest = limits
        o = torch.ops.aten._flash_attention_forward(
            q.reshape(B * T, heads, D), k.reshape(B * T, heads, D), v.reshape(B * T, heads, D), starts, starts, longest, longest,
            0.0, True, False, scale=D ** -0.5)[0]
        return o.view(B, T, heads, D)
    prompt = (position == 0).cumsum(1)
    mask = (prompt[:, :, None] == prompt[:, None, :]).tril()[:, None]
    return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask).transpose(1, 2)


def mlp(x, norm, w_gate, w_up, w_down, eps):
    h = rms(x, norm, eps)
    return x + linear(F.silu(linear(h, w_gate)) * linear(h, w_up), w_down)


class Forward:
    """Hidden states of packed rows. `taps` asks for the residual stream behind those numbers of layers too."""

    def __init__(self, shape, compiled):
        self.shape = shape
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.gdn_before, self.gdn_between, self.gdn_after = wrap(gdn_before), wrap(gdn_between), wrap(gdn_after)
        if not torch.cuda.is_available():  # compiled for the CPU, its gradient is not finite (torch 2.15)
            self.gdn_between = gdn_between
        self.attention_before, self.attention_after, self.mlp = wrap(attention_before), wrap(attention_after), wrap(mlp)

    def __call__(self, p, tokens, position, limits, dtype, taps=()):
        shape = self.shape
        x = F.embedding(tokens, p["model.embed_tokens.weight"]).to(dtype)
        tapped = {}
        for i, kind in enumerate(shape.kinds):
            at = f"model.layers.{i}."
            if kind == "full_attention":
                a = at + "self_attn."
                q, k, v, gate = self.attention_before(
                    x, position, p[at + "input_layernorm.weight"], p[a + "q_proj.weight"], p[a + "k_proj.weight"],
                    p[a + "v_proj.weight"], p[a + "q_norm.weight"], p[a + "k_norm.weight"], shape)
                x = self.attention_after(x, attention(q, k, v, position, limits), gate, p[a + "o_proj.weight"])
            else:
                a = at + "linear_attn."
                q, k, v, z, beta, decay, lower = self.gdn_before(
                    x, position, p[at + "input_layernorm.weight"], p[a + "in_proj_qkv.weight"], p[a + "in_proj_z.weight"],
                    p[a + "in_proj_b.weight"], p[a + "in_proj_a.weight"], p[a + "conv1d.weight"], p[a + "dt_bias"],
                    p[a + "A_log"], shape)
                u, w, m, n = self.gdn_between(Inverse.apply(lower), k, v, beta, decay, shape)
                x = self.gdn_after(x, q, k, u, w, decay, Scan.apply(m, n), z, p[a + "norm.weight"], p[a + "out_proj.weight"], shape)
            x = self.mlp(x, p[at + "post_attention_layernorm.weight"], p[at + "mlp.gate_proj.weight"], p[at + "mlp.up_proj.weight"],
                         p[at + "mlp.down_proj.weight"], shape.eps)
            if i + 1 in taps:
                tapped[i + 1] = x
        return rms(x, p["model.norm.weight"], shape.eps), tapped
