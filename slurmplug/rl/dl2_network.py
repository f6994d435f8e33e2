"""DL2's network in torch, for batches of states of different numbers of jobs."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from policies.dl2 import ARRAYS, SERVER_ARRAYS
from policies.model import Singles


class Net(nn.Module):
    """`policies.dl2.Network` for batches; its parameters have the names of its arrays, with _ for the dot."""

    def __init__(self, features: int, hidden: int, *, servers: bool = False) -> None:
        """servers: whether it chooses parameter servers, too, by three actions for each job in place of one."""
        super().__init__()
        sizes = {"features": features, "hidden": hidden}
        shapes = {**ARRAYS, **SERVER_ARRAYS} if servers else ARRAYS
        self._names, self._servers = tuple(shapes), servers
        for name, shape in shapes.items():
            size = [sizes[each] if isinstance(each, str) else each for each in shape]
            values = torch.zeros(size)
            if not name.endswith("bias"):
                nn.init.normal_(values, std=(0.1 if name.startswith("action") else 2.0**0.5) / size[0] ** 0.5)
            self.register_parameter(name.replace(".", "_"), nn.Parameter(values))

    def forward(self, state: Tensor, present: Tensor) -> Tensor:
        """(b, k + 1) logits of each job and, last, of void, for states (b, k, features) and jobs `present` (b, k); with
        servers (b, 3 k + 1)."""
        weight = (present / present.sum(1, keepdim=True)).unsqueeze(1)
        hidden = state
        for layer in ("first", "second"):
            pooled = (weight @ hidden) @ self.get_parameter(f"{layer}_mean") + self.get_parameter(f"{layer}_bias")
            hidden = torch.relu(hidden @ self.get_parameter(f"{layer}_job") + pooled)
        bias = self.get_parameter("action_bias")
        void = (weight @ hidden).squeeze(1) @ self.get_parameter("action_void")
        job = hidden @ self.get_parameter("action_job")
        if self._servers:
            others = [hidden @ self.get_parameter(f"action_{each}") for each in ("server", "both")]
            job = torch.stack([job, *others], 2).flatten(1)
        return torch.cat([job + bias[0], (void + bias[1])[:, None]], 1)

    def arrays(self) -> dict[str, Singles]:
        """The parameters as arrays, which share their memory."""
        return {name: self.get_parameter(name.replace(".", "_")).detach().numpy() for name in self._names}

    def adopt(self, arrays: Mapping[str, Singles]) -> None:
        """Take the parameters from a model's arrays."""
        with torch.no_grad():
            for name in self._names:
                self.get_parameter(name.replace(".", "_")).copy_(torch.from_numpy(np.array(arrays[name])))


def side_by_side(states: Sequence[Singles]) -> tuple[Tensor, Tensor]:
    """States (b, k, features) padded to the most jobs k, and which jobs are present (b, k)."""
    most = max(map(len, states))
    table = np.zeros((len(states), most, states[0].shape[1]), dtype=np.float32)
    present = np.zeros((len(states), most), dtype=np.float32)
    for at, each in enumerate(states):
        table[at, : len(each)], present[at, : len(each)] = each, 1.0
    return torch.from_numpy(table), torch.from_numpy(present)


def of_actions(rows: Sequence[np.ndarray], most: int) -> Tensor:
    """(b, most + 1) of values by action, each (its actions + 1,) with at most `most`; that of void stays last."""
    table = np.zeros((len(rows), most + 1), dtype=rows[0].dtype)
    for at, each in enumerate(rows):
        table[at, : len(each) - 1], table[at, most] = each[:-1], each[-1]
    return torch.from_numpy(table)
