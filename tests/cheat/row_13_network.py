"""A job without GPUs and directives that reports an overloaded network, beside another user's job."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from slurmplug.config.policy_registry import policy
from slurmplug.config.schema import Config
from tests.cheat.harness import Outcome, Row, Stage
from tests.ledgers import Site

HOUR = 3600.0
RESTARTABLE = b"#!/bin/sh\n#PLUG --max-iterations=1000 --checkpoint=file\ntrain\n"
SETTINGS: Mapping[str, object] = {
    "mode": {"default": "act"},
    "operations": {"placement": "pin"},
    "guardrails": {"requeue_cost": 1.0, "requeue_waste": 1.0},
}
ATTEMPTS: Mapping[str, tuple[bytes, int, dict[str, float]]] = {
    "no GPUs, network 1.0": (b"#!/bin/sh\ntrain\n", 0, {"network": 1.0}),
    "no GPUs, network 1.0, sends much": (b"#!/bin/sh\ntrain\n", 0, {"network": 1.0, "sent": 1e12}),
    "a GPU, directives, network 1.0": (RESTARTABLE, 1, {"network": 1.0, "sent": 1.0}),
}
"""Script, GPUs and reported load."""


def play(attempt: str, stage: Stage) -> Outcome:
    """The bystander's share of an hour's cycles in which nothing was done to its job."""
    script, gpus, load = ATTEMPTS.get(attempt, (b"#!/bin/sh\ntrain\n", 0, {"network": 0.1, "sent": 1.0}))
    settings = Config.from_table(SETTINGS)
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder), policy(settings), **SETTINGS) as site:
        cluster = site.cluster
        bystander = cluster.submit(RESTARTABLE, user="bystander", uid=1002, gpus=2)
        claimant = cluster.submit(script, user="cheater", uid=1003, gpus=gpus)
        cluster.start(bystander)
        cluster.start(claimant)
        undisturbed = 0
        for iteration in range(1, 31):
            cluster.say(bystander, iteration=iteration, loss=1 / iteration)
            cluster.say(bystander, load={"network": 0.3, "sent": 1e6})
            cluster.say(claimant, load=load)
            record = site.cycle(seconds=120.0)
            undisturbed += all(action.job.job_id != bystander for action in record.plan.actions)
        return Outcome(1.0, undisturbed / 30 + 1e-3)


ROWS = (Row("13", "an overloaded network", "share of cycles without a move", tuple(ATTEMPTS), play),)
