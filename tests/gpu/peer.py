# SPDX-License-Identifier: Apache-2.0
"""GPT-2 trained by PyTorch on this GPU, beside examples/gpt2: the same shapes and steps.

    python3 tests/gpu/peer.py [--seconds S] [--quick] MODEL BATCH...

MODEL is gpt2 or gpt2-xl, BATCH its sequences of 1024 tokens. Prints rows of a table: tokens a
second of the median step, arithmetic in Tflop/s (6 operations a parameter and token), the most
memory. Each model runs with fp32 parameters under autocast to bf16, which is what keeps as much
as gpt2's bf16 with fp32 masters does, and all in bf16, masters and moments too, which keeps less;
either eagerly, then with its blocks and head compiled. Fused AdamW, gradients clipped to a norm
of 1, attention by scaled_dot_product_attention. Begins no run after S seconds (240).
"""
import argparse
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

SHAPES = {"gpt2": (12, 768, 12), "gpt2-xl": (48, 1600, 25), "tiny": (2, 64, 1)}
ADAM = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": True}
VOCABULARY, ROWS = 50257, 50304  # tokens; rows of the head, as many as examples/gpt2 multiplies


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attn, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.fc, self.out = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.attn(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Head(nn.Module):
    """The last norm, and the loss by the embedding's rows."""

    def __init__(self, channels):
        super().__init__()
        self.ln = nn.LayerNorm(channels)

    def forward(self, x, rows, targets):
        logits = F.linear(self.ln(x), rows)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Gpt(nn.Module):
    def __init__(self, layers, channels, heads, seq):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(ROWS, channels), nn.Embedding(seq, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.head = Head(channels)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x, self.wte.weight, targets)


def run(name, batch, seq, device, everything_bf16, compiled, steps):
    """Median seconds of a step after the first ones, parameters."""
    torch.manual_seed(1)
    with torch.device(device):
        model = Gpt(*SHAPES[name], seq)
    if everything_bf16:
        model.bfloat16()
    if compiled:
        for part in [*model.blocks, model.head]:
            part.compile()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    seconds = []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (2, batch, seq), device=device)
        begin = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=not everything_bf16):
            loss = model(*tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not loss.item() < 20:  # waits, as our step does
            sys.exit(f"{name}: a loss of {loss.item()}")
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[steps // 3:]), sum(p.numel() for p in model.parameters())


def main(began):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--quick", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("model", nargs="*", default=["gpt2-xl", "8", "gpt2", "16"])
    args = parser.parse_args()
    device, seq, steps = ("cpu", 32, 3) if args.quick else ("cuda", 1024, 15)
    models = list(zip(args.model[::2], map(int, args.model[1::2])))
    models = [("tiny", 2)] if args.quick else models
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    for compiled in (False,) if args.quick else (False, True):
        for name, batch in models:
            for bf16 in False, True:
                if time.perf_counter() - began > args.seconds:
                    return
                row = (f"| PyTorch {torch.__version__}, {name}, batch {batch}, "
                       f"{'all in bf16' if bf16 else 'autocast to bf16'}, "
                       f"{'compiled' if compiled else 'eager'} |")
                try:
                    seconds, count = run(name, batch, seq, device, bf16, compiled, steps)
                except torch.OutOfMemoryError:
                    print(row, "| | no memory |", flush=True)
                    continue
                finally:
                    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
                    torch.cuda.empty_cache() if device == "cuda" else None
                    torch.cuda.reset_peak_memory_stats() if device == "cuda" else None
                rate = batch * seq / seconds
                print(row, f"{rate / 1e3:.4g} ktok/s | {6e-12 * count * rate:.1f} Tflop/s |",
                      f"{peak / 2**30:.1f} GiB |", flush=True)


if __name__ == "__main__":
    main(time.perf_counter())
