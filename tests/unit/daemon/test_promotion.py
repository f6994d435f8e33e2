"""A model that is promoted decides, until an operator or what comes of it takes that back."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.mlfs.mlfs import MLFH
from policies.model import Model
from policies.policy import Policy
from slurmplug.config import model_files
from slurmplug.cycle.record import CycleRecord
from slurmplug.daemon.policy_process import PolicyProcess
from slurmplug.daemon.promotion import Promotion
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.ledger import model_outcomes, policy_models
from slurmplug.ledger.model_outcomes import ModelCycle
from slurmplug.ledger.policy_models import Decided, KeptModel, ModelEvaluation, Role
from tests.learnt_models import OF_OTHER_VERSION, OTHER_VERSION, file_of, like_shipped
from tests.ledgers import Site
from tests.schedulers import configure

ANY_STATE = np.array([1e30], dtype=np.float32)
KNOWS_ALL = like_shipped("knows all states", seen_limit=ANY_STATE)
KNOWS_NONE = like_shipped("knows no state", seen_limit=np.array([1e-30], dtype=np.float32))
SCRIPT = b"#!/bin/sh\n#PLUG --urgency=5\ntrain\n"


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle waits for the process of a model that was promoted."""
    settled = PolicyProcess.settled
    monkeypatch.setattr(PolicyProcess, "settled", lambda process, _=0.0: settled(process, 60.0))


class Promoting(Site):
    """With the daemon's part that puts the policy in place."""

    def __init__(self, folder: Path, policy: Policy | None = None, **settings: Any) -> None:
        super().__init__(folder, policy, **settings)
        if policy is not None:
            configure(self.scheduler, policy=policy.name)
        forecaster = self.scheduler.forecaster
        assert isinstance(forecaster, Forecaster)
        self.promotion = Promotion(self.ledger, self.scheduler, forecaster)

    def __exit__(self, *error: object) -> None:
        self.promotion.close()
        super().__exit__(*error)

    def cycle(self, count: int = 1, seconds: float = 60.0) -> CycleRecord:
        for _ in range(count):
            self.cluster.time += seconds
            self.promotion.before_cycle(self.cluster.time)
            record = self.scheduler.run()
            assert record is not None
            self.promotion.after_cycle(record, self.cluster.time)
        assert record is not None
        return record

    def gives(self, model: Model, role: Role) -> KeptModel:
        decided = Decided("ada", self.cluster.time)
        policy_models.add(self.ledger, model, model_files.encode(model), decided)
        kept = policy_models.find(self.ledger, model.digest)
        policy_models.set_role(self.ledger, kept, role, decided)
        return kept

    def passes_jobs(self, count: int, seconds: float) -> None:
        """So many jobs, one after the other, each of which ends so long after it was ranked."""
        for _ in range(count):
            job = self.cluster.submit(SCRIPT, time_limit=600.0)
            self.cycle()
            self.cluster.start(job)
            self.cluster.time += seconds
            self.cluster.end(job)
            self.cycle()
            self.cluster.purge(job)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Promoting]:
    with Promoting(tmp_path) as site:
        site.cluster.submit(SCRIPT)
        yield site


def test_a_promoted_model_decides_from_the_next_cycle_on_and_the_configured_policy_again_after(
    site: Promoting, tmp_path: Path
) -> None:
    assert site.cycle().policy == "mlfs"
    file = str(file_of(KNOWS_ALL, tmp_path))
    site.ask("policy add", file)
    digits = KNOWS_ALL.digest[:8]
    assert "promoted, from the daemon's next cycle on" in site.ask("policy promote", digits, "it is better")
    record = site.cycle()
    assert (record.policy, record.error) == ("dl2", "")
    assert "stopping.overloaded" in record.plan.memory, "MLF-C is beside it, as beside mlfs"
    assert f"model       dl2 {KNOWS_ALL.digest[:12]} promoted (by root" in site.ask("status", code=1)
    assert "a candidate, from the daemon's next cycle on" in site.ask("policy demote", digits, "as before, please")
    assert site.cycle().policy == "mlfs"
    history = site.ask("policy list")
    assert "promoted by root: it is better" in history
    assert "demoted by root: as before, please" in history


def test_the_configured_policy_decides_until_the_models_process_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = PolicyProcess.settled
    monkeypatch.setattr(PolicyProcess, "settled", lambda *_: False)
    with Promoting(tmp_path) as site:
        site.cluster.submit(SCRIPT)
        kept = site.gives(KNOWS_ALL, "acting")
        for _ in range(2):
            record = site.cycle()
            assert (record.policy, record.error) == ("mlfs", "")
        monkeypatch.setattr(PolicyProcess, "settled", settled)
        record = site.cycle()
        assert (record.policy, record.error) == ("dl2", "")
        assert [each["cycles"] for each in site.ledger.query("SELECT count(*) AS cycles FROM model_cycles")] == [1]
        policy_models.set_role(site.ledger, kept, "candidate", Decided("ada", 0.0))
        assert site.cycle().policy == "mlfs"


def test_where_the_policy_of_the_site_stops_no_jobs_neither_does_the_model(tmp_path: Path) -> None:
    with Promoting(tmp_path, MLFH()) as site:
        site.cluster.submit(SCRIPT)
        site.gives(KNOWS_ALL, "acting")
        record = site.cycle()
        assert record.policy == "dl2"
        assert list(record.plan.memory) == ["slot"]


def test_a_model_that_is_often_not_followed_is_demoted_and_the_reason_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Promoting(tmp_path, promotion={"fallbacks": 3}) as site:
        site.cluster.submit(SCRIPT)
        kept = site.gives(KNOWS_NONE, "acting")
        for _ in range(3):
            record = site.cycle()
            assert record.policy == "mlfs", "the configured policy decides in that same cycle"
            assert "unlike those it was trained on" in record.error
        assert policy_models.in_role(site.ledger, "acting") is None
        assert site.cycle().error == ""
        [*_, demoted] = policy_models.events(site.ledger, kept.digest)
        assert (demoted.event, demoted.decided.by, demoted.decided.evidence["cycles"]) == ("demoted", "slurmplug", 3)
        assert "it could not be followed in 3 cycles of an hour" in site.ask("policy list")
        assert (
            f"{kept.name} is demoted: it could not be followed in 3 cycles of an hour, the last time: " in caplog.text
        )


def test_errors_of_an_hour_ago_do_not_count(tmp_path: Path) -> None:
    with Promoting(tmp_path, promotion={"fallbacks": 3}) as site:
        site.cluster.submit(SCRIPT)
        site.gives(KNOWS_NONE, "acting")
        site.cycle(4, seconds=1900.0)
        assert policy_models.in_role(site.ledger, "acting") is not None


def test_errors_before_it_was_promoted_again_do_not_count(tmp_path: Path) -> None:
    with Promoting(tmp_path, promotion={"fallbacks": 2}) as site:
        site.cluster.submit(SCRIPT)
        site.gives(KNOWS_NONE, "acting")
        site.cycle(2)
        kept = site.gives(KNOWS_NONE, "acting")
        site.cycle()
        assert policy_models.in_role(site.ledger, "acting") is not None
        assert model_outcomes.record(site.ledger, kept.digest, "acting").cycles == 1


def test_a_model_by_which_jobs_take_longer_is_demoted_before_the_cycle_in_which_that_shows(
    site: Promoting,
) -> None:
    site.gives(KNOWS_ALL, "shadow")
    site.passes_jobs(20, seconds=300.0)
    kept = site.gives(KNOWS_ALL, "acting")
    site.passes_jobs(30, seconds=900.0)
    assert policy_models.in_role(site.ledger, "acting") is None
    [*_, demoted] = policy_models.events(site.ledger, kept.digest)
    assert demoted.decided.reason == "worse outcomes"
    evidence = demoted.decided.evidence
    assert evidence["took"] / evidence["took_before"] == pytest.approx(3.0)
    assert (evidence["jobs"], evidence["jobs_before"]) == (20, 20)
    cycles = site.ledger.query("SELECT policy FROM cycles WHERE id > 41 ORDER BY id")
    policies = [row["policy"] for row in cycles]
    assert policies == sorted(policies), "dl2 until then, and mlfs from then on"
    assert "times as long as was forecast of them (the 20 that ended)" in site.ask("policy list")


def test_a_model_by_which_jobs_take_as_long_as_before_stays(site: Promoting) -> None:
    site.gives(KNOWS_ALL, "shadow")
    site.passes_jobs(20, seconds=300.0)
    site.gives(KNOWS_ALL, "acting")
    site.passes_jobs(30, seconds=300.0)
    assert policy_models.in_role(site.ledger, "acting") is not None
    assert "30 jobs ended, which took" in site.ask("status", code=1)


def test_a_promotion_whose_outcomes_cannot_be_compared_says_so(site: Promoting) -> None:
    kept = site.gives(KNOWS_ALL, "candidate")
    told = "0 jobs that mlfs ranked while a model was in shadow have ended, and 20 are needed"
    assert told in site.ask("policy promote", kept.digest)
    policy_models.set_role(site.ledger, kept, "shadow", Decided("ada", site.cluster.time))
    site.passes_jobs(20, seconds=300.0)
    assert "compared" not in site.ask("policy promote", kept.digest)


def of_another_version(site: Promoting, kept: KeptModel) -> None:
    data = model_files.encode(like_shipped("knows all states", version=OTHER_VERSION, seen_limit=ANY_STATE))
    site.ledger.db.execute("UPDATE policy_models SET file = ? WHERE digest = ?", [data, kept.digest])


def damaged(site: Promoting, kept: KeptModel) -> None:
    site.ledger.db.execute("UPDATE policy_models SET file = x'00' WHERE digest = ?", [kept.digest])


@pytest.mark.parametrize(
    ("break_it", "why"),
    [(of_another_version, OF_OTHER_VERSION), (damaged, "not a safetensors file")],
)
def test_a_model_that_cannot_decide_any_more_is_demoted_and_the_configured_policy_decides(
    site: Promoting, break_it: Callable[[Promoting, KeptModel], None], why: str
) -> None:
    """As after an upgrade of slurmplug."""
    kept = site.gives(KNOWS_ALL, "acting")
    break_it(site, kept)
    record = site.cycle()
    assert (record.policy, record.error) == ("mlfs", "")
    assert policy_models.in_role(site.ledger, "acting") is None
    assert why in policy_models.events(site.ledger, kept.digest)[-1].decided.reason


def test_outcomes_are_not_measured_where_ranks_are_not_written(tmp_path: Path) -> None:
    with Promoting(tmp_path, mode={"default": "observe"}) as site:
        site.cluster.submit(SCRIPT)
        site.gives(KNOWS_ALL, "acting")
        site.cycle()
        assert model_outcomes.waits_of_live_jobs(site.ledger) == frozenset()


def test_jobs_that_two_decided_on_count_for_neither(site: Promoting) -> None:
    kept = site.gives(KNOWS_ALL, "acting")
    site.cycle()
    assert len(model_outcomes.waits_of_live_jobs(site.ledger)) == 1
    policy_models.set_role(site.ledger, kept, "candidate", Decided("ada", 0.0))
    assert model_outcomes.waits_of_live_jobs(site.ledger) == frozenset()


def test_without_a_model_in_charge_nothing_is_kept(site: Promoting) -> None:
    site.cycle(3)
    for table in ("model_cycles", "foreseen_waits", "model_events"):
        assert site.ledger.query(f"SELECT * FROM {table}") == []


def answered(site: Promoting, digest: str, cycles: int) -> None:
    """Cycles until the model in shadow has decided in so many of them."""
    until = time.monotonic() + 240.0
    while model_outcomes.record(site.ledger, digest, "shadow").cycles < cycles:
        assert time.monotonic() < until
        site.cycle()
        time.sleep(0.1)


def test_a_model_in_shadow_changes_nothing_and_status_shows_how_far_it_agrees(site: Promoting) -> None:
    for _ in range(3):
        site.cluster.submit(SCRIPT)
    site.cycle()
    before = site.ledger.query("SELECT count(*) AS commands FROM commands")
    kept = site.gives(KNOWS_ALL, "shadow")
    answered(site, kept.digest, 3)
    assert site.ledger.query("SELECT count(*) AS commands FROM commands") == before
    assert {row["policy"] for row in site.ledger.query("SELECT policy FROM cycles")} == {"mlfs"}
    shown = site.ask("status", code=1)
    assert f"model       dl2 {KNOWS_ALL.digest[:12]} in shadow (by ada" in shown
    assert "3 cycles; " in shown
    [model] = json.loads(site.ask("status", "--json", code=1))["models"]
    assert (model["role"], model["cycles"], model["errors"]) == ("shadow", 3, 0)
    policy_models.set_role(site.ledger, kept, "candidate", Decided("ada", 0.0))
    site.cycle()
    assert site.promotion._shadow is None


def evaluated(site: Promoting, kept: KeptModel, workload: str, high: float | None) -> None:
    of_jct = {"before": 100.0, "after": 90.0, "change": -0.1, "low": -0.2, "high": high, "seeds": 3}
    made = ModelEvaluation(1.0, "ada", "mlfs", workload, "16x4", [0, 1, 2], {"jct_mean": of_jct})
    policy_models.keep_evaluation(site.ledger, kept.digest, made)


@pytest.mark.parametrize(
    ("highs", "gain", "promoted"),
    [
        ((-0.06,), 0.05, True),
        ((-0.06,), None, False),
        ((), 0.05, False),
        ((-0.06, -0.04), 0.05, False),
        ((-0.06, None), 0.05, False),
        ((0.01,), 0.0, False),
    ],
)
def test_the_rule_of_the_site_promotes_what_is_better_on_every_workload(
    tmp_path: Path, highs: tuple[float | None, ...], gain: float | None, promoted: bool
) -> None:
    with Promoting(tmp_path, promotion={"gain": gain, "shadow_cycles": 2}) as site:
        site.cluster.submit(SCRIPT)
        kept = site.gives(KNOWS_ALL, "shadow")
        for number, high in enumerate(highs):
            evaluated(site, kept, f"gen:{number}", high)
        for number in range(3):
            site.cycle()
            model_outcomes.keep_cycle(site.ledger, kept.digest, ModelCycle(number + 1, "shadow"))
        assert (site.promotion._allowed(kept) is not None) == promoted


def test_an_error_in_shadow_starts_the_count_anew(tmp_path: Path) -> None:
    with Promoting(tmp_path, promotion={"gain": 0.05, "shadow_cycles": 2}) as site:
        site.cluster.submit(SCRIPT)
        kept = site.gives(KNOWS_ALL, "shadow")
        evaluated(site, kept, "gen:dl2", -0.06)
        for number, error in enumerate(("", "", "late", "")):
            site.cycle()
            model_outcomes.keep_cycle(site.ledger, kept.digest, ModelCycle(number + 1, "shadow", error))
        assert site.promotion._allowed(kept) is None
        site.cycle()
        model_outcomes.keep_cycle(site.ledger, kept.digest, ModelCycle(5, "shadow"))
        assert site.promotion._allowed(kept) == {"gain": 0.06, "cycles": 2}


def test_what_the_rule_promotes_acts_from_the_next_cycle_on(tmp_path: Path) -> None:
    with Promoting(tmp_path, promotion={"gain": 0.05, "shadow_cycles": 2}) as site:
        site.cluster.submit(SCRIPT)
        kept = site.gives(KNOWS_ALL, "shadow")
        evaluated(site, kept, "gen:dl2", -0.06)
        answered(site, kept.digest, 2)
        assert site.cycle().policy == "dl2"
        assert "its mean JCT is shorter by 6.0% at least on every workload" in site.ask("policy list")
