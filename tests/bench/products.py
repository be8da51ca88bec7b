# SPDX-License-Identifier: Apache-2.0
"""gpt2's matrix products beside PyTorch's (oneDNN and MKL) on one thread.

    python tests/bench/products.py PRODUCTS.so [models, e.g. d6,d12] [bf16,fp32]

The twelve products of a block, 2048 tokens, one by one in turn on the same matrices: forward, the
gradient of what goes in (dx), that of the weight (dw). Results are compared with double precision
first. Prints for each kind and for all NAME_peer and NAME_ours, medians of passes over its
products with their ranges, and NAME_ratio = ours / peer, whose aim is 0.85.
"""
import ctypes
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
from huge import huge  # noqa: E402

torch.set_num_threads(1)
TOKENS, ROUNDS, AIM = 2048, 15, 0.85
SECONDS = 40  # after which no further round begins, where there are three
CHANNELS = {"d4": 256, "d6": 384, "d12": 768}
WIDTHS = ((1, 3), (1, 1), (1, 4), (4, 1))  # in and out of a block's layers, in channels
KINDS = ("forward", "dx", "dw")
TOLERANCE = {"bf16": 2**-7, "fp32": 2**-18}  # of the largest value


def normal(rows, columns, dtype):
    return huge(rows, columns, dtype=dtype).normal_()


class Product:
    """out = op(a) op(b), by either side; theirs: op(b) as it lies in memory for PyTorch."""

    def __init__(self, a, b, turn_a, turn_b, theirs=None):
        self.a, self.b, self.turn = a, b, (turn_a, turn_b)
        self.left = a.t() if turn_a else a
        self.right = b if theirs is None else theirs
        self.m, self.k = self.left.shape
        self.n = self.right.shape[1]
        self.out = huge(self.m, self.n, dtype=a.dtype)
        self.flops = 2 * self.m * self.n * self.k

    def peer(self):
        torch.mm(self.left, self.right, out=self.out)

    def ours(self, library, workers):
        library.products_run(workers, int(self.a.dtype == torch.bfloat16), *map(int, self.turn),
                             self.m, self.n, self.k, *(ctypes.c_void_p(x.data_ptr())
                                                       for x in (self.a, self.b, self.out)))

    def error(self):
        exact = self.left.double() @ self.right.double()
        return float((self.out - exact).abs().max() / exact.abs().max())


def products(channels, dtype):
    """By kind. PyTorch's layers store weights (out, in), ours (in, out)."""
    made = {kind: [] for kind in KINDS}
    for ins, outs in WIDTHS:
        x, dy = normal(TOKENS, ins * channels, dtype), normal(TOKENS, outs * channels, dtype)
        weight = normal(ins * channels, outs * channels, dtype)
        theirs = huge(outs * channels, ins * channels, dtype=dtype).copy_(weight.t())
        made["forward"].append(Product(x, weight, False, False, theirs.t()))
        made["dx"].append(Product(dy, weight, False, True, theirs))
        made["dw"].append(Product(x, dy, True, False))
    return made


def check(all_products, sides, dtype):
    for name, call in sides.items():
        for p in all_products:
            p.out.fill_(float("nan"))
            call(p)
            error = p.error()
            if not error <= TOLERANCE[dtype]:
                sys.exit(f"{name}: a product ({p.m}, {p.k}) ({p.k}, {p.n}) is off by {error:.2g} "
                         "of its largest value. Nothing was timed.")


def timed(call, product):
    start = time.perf_counter()
    call(product)
    return time.perf_counter() - start


def measure(library, model, dtype):
    made = products(CHANNELS[model], getattr(torch, {"bf16": "bfloat16", "fp32": "float32"}[dtype]))
    every = [p for kind in KINDS for p in made[kind]]
    bf16 = int(dtype == "bf16")
    workers = ctypes.c_void_p(library.products_open(bf16, max(p.k for p in every)))
    sides = {"peer": Product.peer, "ours": lambda p: p.ours(library, workers)}
    print(f"# {model} {dtype}: ours by {library.products_backend(bf16).decode()}")
    check(every, sides, dtype)
    taken = {kind: {side: [] for side in sides} for kind in KINDS + ("all",)}
    until = time.perf_counter() + SECONDS
    for r in range(ROUNDS):
        if r >= 3 and time.perf_counter() > until:
            break
        whole = dict.fromkeys(sides, 0.0)
        for kind in KINDS:
            seconds = dict.fromkeys(sides, 0.0)
            for p in made[kind]:
                # In turn first: the second one finds operands in the caches.
                for side in sorted(sides, reverse=r % 2):
                    seconds[side] += timed(sides[side], p)
            for side in sides:
                whole[side] += seconds[side]
                taken[kind][side].append(sum(p.flops for p in made[kind]) / seconds[side] / 1e9)
        for side in sides:
            taken["all"][side].append(sum(p.flops for p in every) / whole[side] / 1e9)
    for kind, values in taken.items():
        tag = f"products_{model}_{dtype}_{kind}"
        for side in sides:
            v = values[side]
            print(f"{tag}_{side} {statistics.median(v):.4g} Gflop/s ({min(v):.4g}-{max(v):.4g}, "
                  f"{len(v)} rounds)")
        ratio = statistics.median(values["ours"]) / statistics.median(values["peer"])
        print(f"{tag}_ratio {ratio:.3f} (aim {AIM})", flush=True)


def main():
    library = ctypes.CDLL(os.path.abspath(sys.argv[1]))
    library.products_open.restype = ctypes.c_void_p
    library.products_backend.restype = ctypes.c_char_p
    models = (sys.argv[2] if len(sys.argv) > 2 else "d6,d12").split(",")
    dtypes = (sys.argv[3] if len(sys.argv) > 3 else "bf16,fp32").split(",")
    torch.manual_seed(1)
    for model in models:
        for dtype in dtypes:
            measure(library, model, dtype)


main()
