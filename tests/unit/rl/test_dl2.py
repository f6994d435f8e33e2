"""DL2's training: one network in NumPy and torch, the teacher's choices, and a run that is repeated."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from policies.dl2 import DL2, Allocator, Network  # noqa: E402 only where torch is installed
from slurmplug.errors import UsageError  # noqa: E402
from slurmplug.rl import dl2  # noqa: E402

pytestmark = pytest.mark.rl
TINY: dict[str, Any] = {"jobs": 20, "clusters": ("8x4",), "workloads": 2, "passes": 8, "hidden": 8, "batch": 16}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 24), st.integers(1, 40))
def test_numpy_and_torch_compute_the_same(seed: int, features: int, hidden: int, jobs: int) -> None:
    torch.manual_seed(seed)
    net, rng = dl2.Net(features, hidden), np.random.default_rng(seed)
    state = rng.standard_normal((jobs, features)).astype(np.float32)
    padded = np.zeros((1, jobs + 3, features), dtype=np.float32)
    padded[0, :jobs] = state
    present = torch.from_numpy((np.arange(jobs + 3) < jobs).astype(np.float32)[None])
    theirs = net(torch.from_numpy(padded), present).detach().numpy()[0]
    both = np.append(theirs[:jobs], theirs[-1])
    np.testing.assert_allclose(Network(net.arrays()).logits(state), both, rtol=2e-4, atol=2e-4)


def test_a_run_repeated_gives_the_same_model_which_fits_its_teacher_better_with_each_pass() -> None:
    losses: list[float] = []

    def note(stage: str, step: int, figures: Any) -> None:
        if stage == "supervised":
            losses.append(figures["loss"])
            assert len(losses) == step

    first, second = dl2.train(dl2.Settings(**TINY), note), dl2.train(dl2.Settings(**TINY))
    assert first.digest == second.digest
    assert losses[-1] < 0.9 * losses[0]
    first.require(DL2.name, DL2.version, DL2.shapes)
    assert DL2(model=first).allocator.types


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": 500}, "1000"),
        ({"workload": "mine.csv"}, "gen:"),
        ({"clusters": ()}, "at least one"),
        ({"passes": 0}, "at least 1"),
        ({"slot": float("nan")}, "slot is at least 1 second"),
        ({"teacher": "dl2"}, "another policy"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dl2.Settings(**wrong)


def test_the_teachers_choices_are_those_that_its_jobs_are_short_of() -> None:
    how = dl2.Settings(**TINY, teacher="drf")
    allocator = Allocator(("ctc",), 8, how.slot)
    slots = list(dl2.taught(how, allocator, 0, np.random.default_rng(0)))
    assert slots
    for of_slot, summary in slots:
        assert np.isfinite(summary).all()
        for sample in of_slot:
            assert sample.target.sum() == pytest.approx(1.0)
            assert (sample.target[~sample.mask] == 0).all()
            assert len(sample.state) <= 8
