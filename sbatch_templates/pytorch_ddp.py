"""Train with DistributedDataParallel: rank 0 reports, and all ranks stop and save together."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from slurmplug_report import checkpoint_requested, report

EPOCHS = 100
SAVE_EVERY = 10
SAVED = Path(f"checkpoint-{os.environ['SLURM_JOB_ID']}.pt")


def spirals(rows: int, seed: int) -> TensorDataset:
    """A data set with two classes: points on two spirals."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (rows,), generator=random)
    radius = torch.rand(rows, generator=random)
    angle = 9 * radius + torch.pi * label
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return TensorDataset(points + 0.01 * torch.randn(rows, 2, generator=random), label)


def from_rank_0(device: torch.device, *flags: int) -> list[bool]:
    """The flags of rank 0, on every rank: all ranks must leave the loop, or save, in the same iteration."""
    values = torch.tensor(flags, dtype=torch.uint8, device=device)
    dist.broadcast(values, src=0)
    return [bool(flag) for flag in values]


gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
rank = dist.get_rank()

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
first = 0
if SAVED.exists():
    saved = torch.load(SAVED, map_location=device, weights_only=True)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1
model = DistributedDataParallel(net)
sampler = DistributedSampler(spirals(4096, seed=1))
loader = DataLoader(sampler.dataset, batch_size=128, sampler=sampler)
x_valid, y_valid = (part.to(device) for part in spirals(1024, seed=2).tensors)

status = 0
for epoch in range(first, EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        scores = net(x_valid)
        accuracy = (scores.argmax(dim=1) == y_valid).float().mean()
        loss = nn.functional.cross_entropy(scores, y_valid)
    if rank == 0:
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    answer = report(iteration=epoch, loss=loss, accuracy=accuracy)
    stop, save = from_rank_0(device, answer, checkpoint_requested())
    save = save or stop or epoch % SAVE_EVERY == SAVE_EVERY - 1 or epoch == EPOCHS - 1
    if save and rank == 0:
        part = SAVED.with_suffix(".part")
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, part)
        part.replace(SAVED)
        report(checkpoint=epoch)
    if stop:
        status = answer.status  # 0 on all ranks but rank 0
        break

dist.destroy_process_group()
sys.exit(status)
