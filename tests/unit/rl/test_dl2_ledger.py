"""What was decided at a site, as the ledger has it, is what DL2 learns to decide."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from policies.dl2 import DL2  # noqa: E402 only where torch is installed
from slurmplug.errors import LedgerError, UsageError  # noqa: E402
from slurmplug.rl import dl2, dl2_ledger  # noqa: E402
from tests.ledgers import Site  # noqa: E402

pytestmark = pytest.mark.rl
SLOT = 300.0
TINY: dict[str, Any] = {"slot": SLOT, "passes": 200, "hidden": 8, "batch": 32, "samples": 16}


def submit(site: Site, kind: str, *, urgency: int, priority: float) -> int:
    """A job that slurmplug ranks by its urgency, against Slurm's priority."""
    script = f"#!/bin/sh\n#PLUG --type={kind} --urgency={urgency}\n".encode()
    return site.cluster.submit(script, gpus=4, nodes=1, priority=priority)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A site of two nodes, which runs jobs of the type `first` and lets those of the type `later` wait. When a slot
    begins, one of the first waits, and two of the others, one of which is cancelled before it ends."""
    with Site(tmp_path, interval=60.0) as site:
        waiting = None
        site.cluster.time = SLOT * (site.cluster.time // SLOT + 1) - 60.0
        for _ in range(12):
            later = submit(site, "later", urgency=1, priority=900.0)
            first = submit(site, "first", urgency=9, priority=100.0)
            assert site.cycle().commands
            site.cluster.start(first)
            site.cycle(4)
            site.cluster.end(first)
            if waiting is not None:
                site.cluster.end(waiting, "CANCELLED")
            waiting = later
        return site.path


def test_a_slot_has_what_its_jobs_were_given_in_it(path: Path) -> None:
    slots = list(dl2_ledger.logged(path, SLOT))
    assert len(slots) >= 10
    for each in slots:
        kinds = each.snapshot.jobs.kind
        assert set(each.given[kinds == "first"]) <= {4.0}
        assert set(each.given[kinds == "later"]) == {0.0}  # some wait on, others are cancelled while they wait
    assert dl2_ledger.types(path, SLOT) == ("first", "later")


def test_a_model_learns_who_is_started_first(path: Path) -> None:
    model = dl2.train(dl2.Settings(teacher=f"ledger:{path}", **TINY))
    assert model.facts["types"] == "first,later"
    policy = DL2(model=model)
    slot = next(each for each in dl2_ledger.logged(path, SLOT) if set(each.snapshot.jobs.kind) == {"first", "later"})
    choices = policy.allocator.choices(slot.snapshot, slot.forecasts, begins=True)
    chosen = policy.network.best(choices.state["jobs"], choices.mask)
    assert slot.snapshot.jobs.kind[choices.batch[chosen]] == "first"


def test_a_ledger_without_what_was_decided_is_refused(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.cycle()
    with pytest.raises(UsageError, match="no two slots of 300 s"):
        dl2.train(dl2.Settings(teacher=f"ledger:{site.path}", **TINY))
    with pytest.raises(LedgerError):
        dl2.train(dl2.Settings(teacher=f"ledger:{tmp_path / 'none'}", **TINY))


def test_a_ledger_in_which_slurmplug_could_decide_nothing_is_refused(tmp_path: Path) -> None:
    with Site(tmp_path, interval=60.0) as site:
        site.cluster.submit(b"#!/bin/sh\n", gpus=4, nodes=1)
        site.cycle(15)
    assert list(dl2_ledger.logged(site.path, SLOT))
    with pytest.raises(UsageError, match="made no choice that can be learnt from"):
        dl2.train(dl2.Settings(teacher=f"ledger:{site.path}", **TINY))


def test_jobs_that_ended_within_the_slot_were_given_what_they_held_or_requested(path: Path) -> None:
    slots = list(dl2_ledger.logged(path, SLOT))
    first, last = slots[0].snapshot, slots[-1].snapshot
    assert not set(first.jobs.keys) & set(last.jobs.keys)
    np.testing.assert_array_equal(dl2_ledger.given(first, last, {}), first.jobs.gpus)


def test_a_job_that_was_cancelled_while_it_waited_was_given_nothing(tmp_path: Path) -> None:
    """Beside one that began and ended in the slot, and one that was requeued, and cancelled before it began again."""
    with Site(tmp_path, interval=60.0) as site:
        cancelled, ran, again = (submit(site, "any", urgency=5, priority=100.0) for _ in range(3))
        site.cluster.start(again)
        site.cycle()
        site.cluster.requeue(again)
        site.cluster.time = SLOT * (site.cluster.time // SLOT + 1)
        site.cycle()
        site.cluster.start(ran)
        site.cycle()
        for job, state in ((ran, "COMPLETED"), (cancelled, "CANCELLED"), (again, "CANCELLED")):
            site.cluster.end(job, state)
        site.cycle(10)
        slots = list(dl2_ledger.logged(site.path, SLOT))
    [last] = [each for each in slots if not each.snapshot.jobs.running.any() and len(each.snapshot.jobs)]
    assert {key.job_id: gpus for key, gpus in zip(last.snapshot.jobs.keys, last.given, strict=True)} == {
        cancelled: 0.0,
        ran: 4.0,
        again: 0.0,
    }


def test_a_slot_after_which_there_is_no_cycle_for_long_is_left_out(tmp_path: Path) -> None:
    with Site(tmp_path, interval=60.0) as site:
        job = submit(site, "any", urgency=5, priority=100.0)
        site.cluster.time = SLOT * (site.cluster.time // SLOT + 1)
        site.cycle()
        site.cluster.start(job)
        site.cycle(1, 5 * SLOT)
        site.cycle(1, SLOT)
        begins = [each.snapshot.jobs.running.tolist() for each in dl2_ledger.logged(site.path, SLOT)]
    assert begins == [[True]]
