#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt2_tiny.bin: what PyTorch computes for the tiny GPT-2 of
tests/model_test.c. Run by hand, in a virtual environment with torch and numpy:

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/golden/make_golden.py

Parameters and tokens come from a hash of their index, so both sides make them.
Every parameter is exact in bf16. Logits, loss and gradients are computed in
double, the ten AdamW losses in fp32. The file: 256 bytes of text (what wrote
it, padded with spaces), then fp32: loss, logits (B, T, V), each tensor's
gradient in the order of declaration (wte without padding), ten losses.
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, C, HEADS, T, V, BATCH = 2, 32, 2, 24, 100, 2
PADDED = (V + 63) // 64 * 64
STEPS, LR, BETAS, EPS, DECAY, CLIP = 10, 1e-2, (0.9, 0.95), 1e-8, 0.1, 1.0


def mix(index):
    """splitmix64 of an array of indices"""
    with np.errstate(over="ignore"):
        z = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def values(tensor, shape, norm_weight):
    n = int(np.prod(shape))
    hashed = mix(np.arange(n, dtype=np.uint64) + np.uint64(tensor << 32))
    if norm_weight:
        x = 1.0 + ((hashed % np.uint64(31)).astype(np.int64) - 15) / 128.0
    else:
        x = ((hashed % np.uint64(255)).astype(np.int64) - 127) / 512.0
    return torch.tensor(x.reshape(shape), dtype=torch.float64)


def tokens(step):
    n = BATCH * (T + 1)
    hashed = mix(np.arange(n, dtype=np.uint64) + np.uint64((1000 + step) << 32))
    x = torch.tensor((hashed % np.uint64(V)).astype(np.int64).reshape(BATCH, T + 1))
    return x[:, :-1], x[:, 1:]


BLOCK = [("ln_1.weight", (C,)), ("ln_1.bias", (C,)),
         ("attn.c_attn.weight", (C, 3 * C)), ("attn.c_attn.bias", (3 * C,)),
         ("attn.c_proj.weight", (C, C)), ("attn.c_proj.bias", (C,)),
         ("ln_2.weight", (C,)), ("ln_2.bias", (C,)),
         ("mlp.c_fc.weight", (C, 4 * C)), ("mlp.c_fc.bias", (4 * C,)),
         ("mlp.c_proj.weight", (4 * C, C)), ("mlp.c_proj.bias", (C,))]


def parameters(dtype):
    names = [("wte.weight", (PADDED, C)), ("wpe.weight", (T, C))]
    for layer in range(LAYERS):
        names += [("h.%d.%s" % (layer, name), shape) for name, shape in BLOCK]
    names += [("ln_f.weight", (C,)), ("ln_f.bias", (C,))]
    out = {}
    for i, (name, shape) in enumerate(names):
        x = values(i, shape, "ln_" in name and name.endswith("weight"))
        x = x[:V] if name == "wte.weight" else x
        out[name] = x.to(dtype).clone().requires_grad_(True)
    return out


def forward(p, x):
    h = p["wte.weight"][x] + p["wpe.weight"]
    for layer in range(LAYERS):
        def q(name):
            return p["h.%d.%s" % (layer, name)]
        a = F.layer_norm(h, (C,), q("ln_1.weight"), q("ln_1.bias"), 1e-5)
        qkv = a @ q("attn.c_attn.weight") + q("attn.c_attn.bias")
        heads = [t.view(BATCH, T, HEADS, C // HEADS).transpose(1, 2) for t in qkv.split(C, 2)]
        a = F.scaled_dot_product_attention(*heads, is_causal=True)
        a = a.transpose(1, 2).reshape(BATCH, T, C)
        h = h + a @ q("attn.c_proj.weight") + q("attn.c_proj.bias")
        a = F.layer_norm(h, (C,), q("ln_2.weight"), q("ln_2.bias"), 1e-5)
        a = F.gelu(a @ q("mlp.c_fc.weight") + q("mlp.c_fc.bias"), approximate="tanh")
        h = h + a @ q("mlp.c_proj.weight") + q("mlp.c_proj.bias")
    h = F.layer_norm(h, (C,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return h @ p["wte.weight"].T


def loss_of(logits, y):
    return F.cross_entropy(logits.reshape(-1, V), y.reshape(-1))


def adam_losses():
    p = parameters(torch.float32)
    groups = [{"params": [t for t in p.values() if t.ndim >= 2], "weight_decay": DECAY},
              {"params": [t for t in p.values() if t.ndim < 2], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for step in range(STEPS):
        x, y = tokens(step)
        loss = loss_of(forward(p, x), y)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        adam.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    p = parameters(torch.float64)
    x, y = tokens(0)
    logits = forward(p, x)
    loss = loss_of(logits, y)
    loss.backward()
    losses = adam_losses()
    parts = [np.array([loss.item()]), logits.detach().numpy().ravel()]
    parts += [t.grad.numpy().ravel() for t in p.values()] + [np.array(losses)]
    text = "gpt2_tiny by make_golden.py: python %s, torch %s, numpy %s" % (
        sys.version.split()[0], torch.__version__, np.__version__)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt2_tiny.bin")
    with open(path, "wb") as f:
        f.write(text.ljust(255).encode() + b"\n")
        f.write(np.concatenate(parts).astype("<f4").tobytes())
    print(text, loss.item(), losses, os.path.getsize(path))


main()
