# SPDX-License-Identifier: Apache-2.0
"""libzero's Adam beside PyTorch's fused AdamW and DeepSpeedCPUAdam.

    OMP_NUM_THREADS=1 python tests/bench/adam.py KERNELS.so [sizes in 2^20, e.g. 1,16,128]

In one process, on the same arrays, in turn; results are compared first. Prints
NAME_peer and NAME_ours, medians with their ranges, and NAME_ratio = ours / peer.
adam: the update alone, fp32. whole: what happens to a bf16 gradient in a step:
widened, its norm taken, scaled and clipped, the update, the new bf16 weights.
one_pass: of that ours, where reduce took the norm; PyTorch's scale, update and
copy of a widened one; of DeepSpeed, which takes the norm behind its reduction, all, and as
"deepspeed_late" what is left of it behind the norm: scale, update and copy.
"""
import ctypes
import math
import os
import statistics
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")
THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))

import torch  # noqa: E402
from huge import huge  # noqa: E402

torch.set_num_threads(THREADS)
LR, BETA1, BETA2, EPS, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0
WHAT = ("adam", "whole", "one_pass")
# Out of the caches, on one thread and on more.
AIMS = {("adam", "torch"): (0.98, 0.98), ("one_pass", "torch"): (1.4, 1.3),
        ("one_pass", "deepspeed"): (3, 2.2)}
PIECE = 2**21  # elements of a tensor whose norm DeepSpeed takes at once


class Constants(ctypes.Structure):  # struct adam of kernels/kernels.h
    _fields_ = [(name, ctypes.c_float) for name in (
        "grad_scale decay beta1 one_minus_beta1 beta2 one_minus_beta2 step_size root_scale eps l2"
    ).split()]


def constants(step, grad_scale=1.0):
    return Constants(grad_scale, 1 - LR * DECAY, BETA1, 1 - BETA1, BETA2, 1 - BETA2,
                     LR / (1 - BETA1**step), 1 / math.sqrt(1 - BETA2**step), EPS, 0)


def zeros(count, dtype=torch.float32):
    return huge(count, dtype=dtype).zero_()


def clip_factor(norm):
    return CLIP / (norm + 1e-6) if norm > CLIP else 1.0


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


class State:
    """Everything an update touches; step counts what was made of it."""

    def __init__(self, count):
        random = torch.Generator().manual_seed(1)
        self.count, self.step = count, 0
        self.p, self.m, self.v, self.g = (zeros(count) for _ in range(4))
        self.g16, self.p16 = (zeros(count, torch.bfloat16) for _ in range(2))
        self.squares = torch.zeros(count // 64, dtype=torch.float64)
        self.p.normal_(generator=random).mul_(0.02)
        self.g.normal_(generator=random).mul_(1e-3)
        self.g16.copy_(self.g)
        self.g.copy_(self.g16)
        self.factor = clip_factor(float(self.g.double().norm()))


class Ours:
    def __init__(self, path, state):
        self.library, self.state = ctypes.CDLL(path), state
        self.library.peers_open.restype = ctypes.c_void_p
        self.library.peers_sum.restype = ctypes.c_double
        self.workers = ctypes.c_void_p(self.library.peers_open(THREADS))

    def update(self, k, g, g16, p16):
        s = self.state
        self.library.peers_adam(self.workers, ctypes.c_int64(s.count), ctypes.byref(k), address(g),
                                address(g16), address(s.p), address(s.m), address(s.v),
                                address(p16))

    def adam(self):
        self.state.step += 1
        self.update(constants(self.state.step), self.state.g, None, None)

    def whole(self):
        s = self.state
        s.step += 1
        square = self.library.peers_sum(self.workers, ctypes.c_int64(s.count), address(s.g16),
                                        address(s.g), address(s.squares))
        self.update(constants(s.step, clip_factor(math.sqrt(square))), s.g, None, s.p16)

    def one_pass(self):
        s = self.state
        s.step += 1
        self.update(constants(s.step, s.factor), None, s.g16, s.p16)


class Torch:
    def __init__(self, state):
        self.state, self.param = state, torch.nn.Parameter(state.p)
        self.param.grad = state.g
        self.optimizer = torch.optim.AdamW([self.param], lr=LR, betas=(BETA1, BETA2), eps=EPS,
                                           weight_decay=DECAY, fused=True)

    def adam(self):
        s = self.state
        kept = self.optimizer.state[self.param]
        kept.update(step=torch.tensor(float(s.step)), exp_avg=s.m, exp_avg_sq=s.v)
        s.step += 1
        self.optimizer.step()

    def whole(self):
        s = self.state
        s.g.copy_(s.g16)
        torch.nn.utils.clip_grad_norm_([self.param], CLIP)
        self.adam()
        s.p16.copy_(s.p)

    def one_pass(self):
        s = self.state
        s.g.mul_(s.factor)
        self.adam()
        s.p16.copy_(s.p)


class DeepSpeed:
    """whole: the passes of its ZeRO-3 with the optimizer on the CPU, in its order."""

    def __init__(self, state):
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        self.state, self.param = state, torch.nn.Parameter(state.p)
        self.param.grad = state.g
        self.optimizer = DeepSpeedCPUAdam([self.param], lr=LR, betas=(BETA1, BETA2), eps=EPS,
                                          weight_decay=DECAY, adamw_mode=True)

    def adam(self):
        s = self.state
        kept = self.optimizer.state[self.param]
        kept.update(step=s.step, exp_avg=s.m, exp_avg_sq=s.v)
        s.step += 1
        self.optimizer.step()

    def whole(self):
        s, square = self.state, 0.0
        for piece in s.g16.split(PIECE):
            square += float(piece.to(torch.double).norm(2)) ** 2
        for to, piece in zip(s.g.split(PIECE), s.g16.split(PIECE)):
            to.copy_(piece.to(torch.float32))
        s.g.mul_(clip_factor(math.sqrt(square)))
        self.adam()
        s.p16.copy_(s.p)

    one_pass = whole


class DeepSpeedLate(DeepSpeed):
    def one_pass(self):
        s = self.state
        s.g.mul_(s.factor)
        self.adam()
        s.p16.copy_(s.p)


def after_one_step(make, what, count):
    state = State(count)
    getattr(make(state), what)()
    return state


def check(path, peers):
    count = 2**20
    for what in WHAT:
        ours = after_one_step(lambda s: Ours(path, s), what, count)
        for name, make in peers.items():
            peer = after_one_step(make, what, count)
            for field in "pmv":
                a, b = getattr(ours, field), getattr(peer, field)
                error = float((a - b).abs().max() / b.abs().max())
                # DeepSpeed forms 1 - beta in fp32, torch takes the norm in fp32: both move
                # the moments by more.
                exact = what == "adam" and name == "torch"
                bound = 1e-6 if exact or field == "p" else 1e-4
                print(f"# {what}: {field} differs from {name}'s by {error:.1e} of its largest")
                if not error <= bound:
                    sys.exit(f"{what}: {field} differs from {name}'s by {error:.2g}, more than "
                             f"{bound:g}. Nothing was timed.")
            narrowed = ((ours.p.view(torch.int32) + 0x8000) >> 16).to(torch.int16)  # ties away
            if what != "adam" and not torch.equal(ours.p16.view(torch.int16), narrowed):
                sys.exit(f"{what}: the bf16 weights are not rounded masters. Nothing was timed.")


def seconds(call):
    time.sleep(0.05)  # threads of the other library stop spinning, which takes some 10 ms
    call()  # wakes this one's, which would have slept through a small one
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(path, makers, size):
    state = State(size * 2**20)
    sides = {"ours": Ours(path, state)}
    sides.update((name, make(state)) for name, make in makers.items())
    rounds = 15 if size <= 16 else 7
    for what in WHAT:
        # "late" differs in its one pass alone.
        used = {n: s for n, s in sides.items() if what == "one_pass" or not n.endswith("late")}
        taken = {name: [] for name in used}
        for r in range(rounds + 1):
            for name, side in used.items():
                value = state.count * 1e-9 / seconds(getattr(side, what))
                if r:
                    taken[name].append(value)
        for name in list(used)[1:]:
            tag = f"{what}_{name}_{size}M_{THREADS}t"
            for side, of in (("peer", name), ("ours", "ours")):
                values = taken[of]
                print(f"{tag}_{side} {statistics.median(values):.4g} Gparam/s "
                      f"({min(values):.3g}-{max(values):.3g})")
            ratio = statistics.median(taken["ours"]) / statistics.median(taken[name])
            aim = AIMS.get((what, name)) if size >= 16 else None
            shown = f" (aim {aim[THREADS > 1]:g})" if aim else ""
            print(f"{tag}_ratio {ratio:.3f}{shown}", flush=True)


def main():
    path = os.path.abspath(sys.argv[1])
    sizes = [int(s) for s in (sys.argv[2] if len(sys.argv) > 2 else "1,16,128").split(",")]
    peers = {"torch": Torch}
    try:
        import deepspeed  # noqa: F401
        peers["deepspeed"] = DeepSpeed
        peers["deepspeed_late"] = DeepSpeedLate
    except ImportError as error:
        print(f"# without DeepSpeed: {error}")
    check(path, peers)
    for size in sizes:
        measure(path, peers, size)


main()
