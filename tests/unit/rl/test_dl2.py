"""DL2's training: one network in NumPy and torch, the teacher's choices, and runs that are repeated and resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from policies.dl2 import Allocator, Network  # noqa: E402 only where torch is installed
from slurmplug.rl import dl2  # noqa: E402

TINY: dict[str, Any] = {
    "warmup": 1, "passes": 1, "episodes": 2, "validate": 1, "hidden": 8, "samples": 2, "batch": 16, "held": 2,
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 24), st.integers(1, 40))
def test_numpy_and_torch_compute_the_same(seed: int, features: int, hidden: int, jobs: int) -> None:
    torch.manual_seed(seed)
    net, rng = dl2.Net(features, hidden), np.random.default_rng(seed)
    state = rng.standard_normal((jobs, features)).astype(np.float32)
    padded = np.zeros((1, jobs + 3, features), dtype=np.float32)
    padded[0, :jobs] = state
    present = torch.from_numpy((np.arange(jobs + 3) < jobs).astype(np.float32)[None])
    job, void = net(torch.from_numpy(padded), present)
    theirs = np.append(job.detach().numpy()[0, :jobs], void.detach().numpy())
    np.testing.assert_allclose(Network(net.arrays()).logits(state), theirs, rtol=2e-4, atol=2e-4)


def test_a_run_repeated_gives_the_same_model() -> None:
    first, second = (dl2.train(dl2.Settings(**TINY)) for _ in range(2))
    assert first.digest == second.digest


def test_a_run_that_was_interrupted_gives_the_model_that_it_would_have_given(tmp_path: Path) -> None:
    class Interrupted(Exception): ...

    def interrupt(stage: str, step: int, figures: object) -> None:  # noqa: ARG001
        if (stage, step) == ("online", 2):
            raise Interrupted

    how = dl2.Settings(**TINY, checkpoint=str(tmp_path / "run"))
    with pytest.raises(Interrupted):
        dl2.train(how, interrupt)
    assert dl2.train(how).digest == dl2.train(dl2.Settings(**TINY)).digest
    assert not (tmp_path / "run").exists()


def test_seeds_of_validation_and_results_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1000"):
        dl2.Settings(seed=500)


def test_the_teachers_choices_are_those_that_its_jobs_are_short_of() -> None:
    how = dl2.Settings(**TINY, teacher="drf")
    allocator = Allocator(("ctc",), 8, how.slot)
    for sample in dl2.taught(how, allocator, 1000, np.random.default_rng(0)):
        assert sample.target.sum() == pytest.approx(1.0)
        assert (sample.target[~sample.mask] == 0).all()
        assert len(sample.state) <= 8
