"""Several environments side by side, each in a process of its own.

gymnasium's own vectorisation serves: states have a fixed shape, so they come through shared memory, and masks come with
`info`, batched as `action_mask` (environments, numbers).
"""

from functools import partial

from gymnasium.vector import AsyncVectorEnv

from slurmplug.rl.environment import SchedulingEnvironment, Task


def processes(task: Task, count: int) -> AsyncVectorEnv:
    """`count` environments in processes; `reset(seed=n)` gives them the seeds n, n + 1, ...

    The processes are not forked from this one, as torch's threads do not survive that: whoever calls this from a script
    does so below `if __name__ == "__main__"`.
    """
    return AsyncVectorEnv([partial(SchedulingEnvironment, task)] * count, context="forkserver")
