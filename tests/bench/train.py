# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run by PyTorch or DeepSpeed, in the shape of build/gpt2's models.

    torchrun --nproc-per-node 2 tests/bench/train.py MODE LAYERS CHANNELS [STEPS]

MODE: ddp, fsdp2, zero0 to zero3; zero3nvme has optimizer state and parameters in files in
TMPDIR, zero3pipe reads and writes them behind the update besides, zero3update has optimizer
state alone there and one sequence of 8 bytes a rank: what is left is the update; zero3updatepipe
is that, pipelined. DTYPE=bf16 or fp32; else sequences of 256 bytes, 8 a rank; the head tied to
the embedding, AdamW, clipping to 1. Rank 0 prints a line: seconds per step (median, least, most;
of the slower rank), the most memory of a rank in MiB, the first and last loss, the parameters,
the seconds of DeepSpeed's update alone.
"""
import os
import statistics
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

MODE, LAYERS, CHANNELS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
STEPS = int(sys.argv[4]) if len(sys.argv) > 4 else 7
DTYPE = {"bf16": torch.bfloat16, "fp32": torch.float32}[os.environ.get("DTYPE", "bf16")]
FILES = MODE in ("zero3nvme", "zero3pipe")
UPDATE = MODE.startswith("zero3update")
BATCH, SEQ = (1, 8) if UPDATE else (8, 256)
WARM, VOCABULARY, HEAD = 2, 256, 64
ADAM = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


class Linear(nn.Linear):
    def reset_parameters(self):
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)


class Embedding(nn.Embedding):
    def reset_parameters(self):
        nn.init.normal_(self.weight, std=0.02)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        c = CHANNELS
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attn, self.proj = Linear(c, 3 * c), Linear(c, c)
        self.fc, self.out = Linear(c, 4 * c), Linear(4 * c, c)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.attn(self.ln_1(x)).view(b, t, 3, c // HEAD, HEAD).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = Embedding(VOCABULARY, CHANNELS), Embedding(SEQ, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(CHANNELS)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.ln(h), self.wte.weight)
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), y.view(-1))


def batch(step, rank):
    """Words of few letters: what can be learned in a few steps."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randint(97, 101, (BATCH, SEQ + 1), generator=random)
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def with_torch(make):
    model = make()
    count = sum(p.numel() for p in model.parameters())
    if MODE == "ddp":
        model = nn.parallel.DistributedDataParallel(model.to(DTYPE))
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        options = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
                   "mp_policy": MixedPrecisionPolicy(DTYPE, torch.float32)}
        for block in model.blocks:
            fully_shard(block, **options)
        fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **ADAM)

    def step(x, y):
        loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, count


def deepspeed_config():
    zero = {"stage": int(MODE[4])}
    if FILES or UPDATE:
        folder = os.path.join(os.environ.get("TMPDIR", "/var/tmp"), f"zero-peer.{os.getppid()}")
        os.makedirs(folder, exist_ok=True)
        place = {"device": "nvme", "nvme_path": folder, "pin_memory": True}
        pipe = MODE.endswith("pipe")
        # Fewer buffers, or groups as large as the default's, fail or do not fit in memory. Its
        # prefetch of parameters in files fails in the second step.
        zero |= {"sub_group_size": 24000000 if UPDATE else 4000000,
                 "stage3_prefetch_bucket_size": 0,
                 "offload_optimizer": place | {"buffer_count": 12 if pipe else 5,
                                               "pipeline_read": pipe, "pipeline_write": pipe}}
    if FILES:
        zero |= {"offload_param": place | {"buffer_count": 4 * LAYERS + 16, "max_in_cpu": 0,
                                           "buffer_size": 2 * CHANNELS**2 + 1024}}
    return {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": 1,
            "gradient_clipping": 1.0, "bf16": {"enabled": DTYPE == torch.bfloat16},
            "steps_per_print": 10**9, "optimizer": {"type": "AdamW", "params": ADAM},
            "zero_optimization": zero,
            "aio": {"block_size": 1 << 20, "queue_depth": 8, "single_submit": False,
                    "overlap_events": True, "intra_op_parallelism": 1}}


updates = []


def with_deepspeed(make):
    import deepspeed
    config = deepspeed_config()
    if FILES or UPDATE:
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = make()
    else:
        model = make()
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                  config=config)[0]

    def step(x, y):
        loss = engine(x, y)
        engine.backward(loss)
        start = time.perf_counter()
        engine.step()
        updates.append(time.perf_counter() - start)
        return loss

    return step, sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())


def memory_most():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main():
    if MODE.startswith("zero"):
        import deepspeed
        deepspeed.init_distributed(dist_backend="gloo")
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    rank, losses, taken = dist.get_rank(), [], []
    step, count = (with_deepspeed if MODE.startswith("zero") else with_torch)(GPT)
    for s in range(WARM + STEPS):
        x, y = batch(s, rank)
        dist.barrier()
        start = time.perf_counter()
        losses.append(float(step(x, y).detach()))
        seconds = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        if s >= WARM:
            taken.append(float(seconds))
    most = torch.tensor([memory_most()])
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{MODE} {statistics.median(taken):.4f} {min(taken):.4f} {max(taken):.4f} "
              f"{float(most):.0f} {losses[0]:.4f} {losses[-1]:.4f} {count} "
              f"{statistics.median(updates[WARM:] or [0]):.4f}", flush=True)
    dist.barrier()
    os._exit(0)  # some ways of ending abort in gloo's threads


main()
