"""MLF-RL's network in torch, for batches of states of different numbers of jobs and nodes."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from policies.mlfs import network
from policies.mlfs.network import DEEP, State
from policies.model import Singles


class Batch:
    """The jobs, nodes and edges of several states one after another."""

    def __init__(self, states: Sequence[State]) -> None:
        jobs, nodes = ([len(each) for each in some] for some in zip(*((s.jobs, s.nodes) for s in states), strict=True))
        first = np.cumsum([0, *jobs])[:-1], np.cumsum([0, *nodes])[:-1]
        self.states = len(states)
        self.jobs = torch.from_numpy(np.concatenate([each.jobs for each in states]))
        self.nodes = torch.from_numpy(np.concatenate([each.nodes for each in states]))
        edges = np.concatenate([each.edges + job for each, job in zip(states, first[0], strict=True)])
        on = np.concatenate([each.on + np.array(at) for each, *at in zip(states, *first, strict=True)])
        self.child, self.parent = torch.from_numpy(edges).T
        self.row, self.at = torch.from_numpy(on).T
        self.of_job = torch.from_numpy(np.repeat(np.arange(len(states)), jobs))
        self.of_node = torch.from_numpy(np.repeat(np.arange(len(states)), nodes))


class Net(nn.Module):
    """`policies.mlfs.network.numbers` of the jobs, for batches; parameters have the names of its `ARRAYS`, with _ for
    the dot."""

    def __init__(self, seed: int, hidden: int) -> None:
        """One that decides as MLF-H."""
        super().__init__()
        for name, array in network.initial(seed, hidden).items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(array)))

    def forward(self, batch: Batch) -> Tensor:
        """(jobs, 3 + k)"""
        of, n = self._of, len(batch.jobs)
        job = torch.relu(batch.jobs @ of("job.weight") + of("job.bias"))
        node = torch.relu(batch.nodes @ of("node.weight") + of("node.bias"))
        whole = _mean(job, batch.of_job, batch.states) @ of("jobs.weight")
        every = _mean(node, batch.of_node, batch.states) @ of("nodes.weight")
        second = torch.relu(
            job @ of("own.weight")
            + _mean(job[batch.parent], batch.child, n) @ of("parents.weight")
            + _mean(job[batch.child], batch.parent, n) @ of("children.weight")
            + _mean(node[batch.at], batch.row, n) @ of("on.weight")
            + (whole + every + of("second.bias"))[batch.of_job]
        )
        direct = batch.jobs @ of("direct.weight") + of("direct.bias")
        deep = second @ torch.cat([of(name) for name in DEEP], 1)
        return torch.cat([direct + deep, second @ of("query.weight")], 1)

    def arrays(self) -> dict[str, Singles]:
        """The parameters as arrays, which share their memory."""
        return {name: self._of(name).detach().numpy() for name in network.ARRAYS}

    def adopt(self, arrays: Mapping[str, Singles]) -> None:
        """Take the parameters from arrays."""
        with torch.no_grad():
            for name in network.ARRAYS:
                self._of(name).copy_(torch.from_numpy(np.array(arrays[name])))

    def _of(self, name: str) -> Tensor:
        return self.get_parameter(name.replace(".", "_"))


def _mean(messages: Tensor, to: Tensor, n: int) -> Tensor:
    """(n, h) the mean of the messages (k, h) to each of n; 0 where there is none."""
    sums = torch.zeros(n, messages.shape[1]).index_add(0, to, messages)
    return sums / torch.bincount(to, minlength=n).clamp(min=1)[:, None]
