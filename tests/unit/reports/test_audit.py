"""`slurmplug audit`: cycles of real ledgers decided again, and what it finds in those that were changed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, OtherJob, Plan, Reason
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files, policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.ledger import codec, differences, policy_models
from slurmplug.ledger.decided import as_kept, first_difference
from slurmplug.ledger.inputs import inputs
from slurmplug.ledger.policy_models import Decided
from slurmplug.reports.audit import decided_again
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads.load import load
from tests.learnt_models import like_shipped, shipped
from tests.ledgers import Planned, Site

DEADLINE = (
    b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=90 --deadline=2026-12-01T00:00\ntrain\n"
)
OWN = """
import itertools
from dataclasses import dataclass

import numpy as np

from policies.plan import Plan
from policies.policy import Policy

numbers = itertools.count()


@dataclass(frozen=True)
class Settings:
    pass


class Own(Policy):
    name = "own"

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        return Plan(score=np.arange(len(snapshot.jobs), dtype=float) * -1 + SHIFT)
"""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def opened(policy: str = "mlfs", **settings: Any) -> Site:
        made = policy_registry.policy(Config.from_table({"policy": policy, **settings}))
        sites.append(Site(tmp_path, made, **settings))
        return sites[-1]

    yield opened
    for site in sites:
        site.ledger.close()


def busy(site: Site, cycles: int = 6) -> Site:
    """Cycles in which jobs come, start, train and end; some of them command something."""
    for number in range(cycles):
        for urgency in range(3):
            script = f"#!/bin/sh\n#PLUG --urgency={urgency * 3} --max-iterations=60 --type=t{urgency}\n".encode()
            site.cluster.submit(script, priority=1.0 + urgency, gpus=1 + urgency)
        job = site.cluster.submit(DEADLINE, priority=1.0)
        site.cycle()
        if number < 3:
            site.cluster.start(job)
            site.train(job, {each: each / 100 for each in range(1, 12)}, loss=1.0)
    site.cycle(2)
    return site


def configuration(folder: Path, policy: str) -> tuple[str, str]:
    path = folder / "slurmplug.toml"
    path.write_text(f'policy = "{policy}"\n')
    return "--config", str(path)


def own_policy(folder: Path, shift: str) -> str:
    path = folder / "own.py"
    path.write_text(OWN.replace("SHIFT", shift))
    return f"{path}:Own"


def changed(site: Site, cycle: int, change: Callable[[list[Any]], None]) -> None:
    """Change by hand what is kept of a cycle."""
    kept = inputs(site.ledger, cycle)
    assert kept is not None
    change(kept)
    row = [codec.dumps(kept), cycle]
    site.ledger.db.execute("UPDATE cycles SET inputs = ?, inputs_base = NULL WHERE id = ?", row)


@pytest.mark.parametrize("policy", [each for each in policy_names.names() if each != "slurm"])
def test_a_runs_cycles_are_decided_again_with_the_same_plans(policy: str, opened: Callable[..., Site]) -> None:
    site = busy(opened(policy=policy))
    found = site.json("audit")
    assert found["cycles"] == found["same"] > 0, found
    assert found["different"] == found["not_again"] == []
    assert site.ask("audit").endswith("Every cycle was decided again, with the same plan to the last bit.\n")


def test_inputs_that_are_differences_are_decided_again_too(
    opened: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurmplug.ledger.inputs.EACH_WHOLE", 3)
    site = busy(opened())
    kinds = {row["inputs_base"] is None for row in site.ledger.query("SELECT * FROM cycles WHERE inputs IS NOT NULL")}
    assert kinds == {True, False}
    assert site.json("audit")["same"] == site.json("audit")["cycles"]


@pytest.mark.parametrize("policy", ["mlfs", "mlf-rl", "dl2", "oasis", "dorm"])
def test_simulated_cycles_are_decided_again_from_differences_with_the_same_plans(policy: str) -> None:
    """Many more states than a test makes by hand: jobs of all sizes, moved, stopped and resized."""
    config = Config.from_table({"policy": policy})
    again = policy_registry.policy(config)
    settings = SimulationSettings("10x4", seed=1)
    simulation = Simulation(load("gen:mlfs", seed=1, jobs=24, load=8.0), policy_registry.policy(config), settings)
    cycles, decided, base = simulation.cycles(), None, None
    for _ in range(40):
        observed = cycles.send(decided)
        decided = simulation.scheduler.decide(observed)
        kept = [observed.snapshot, observed.forecasts, observed.memory, as_kept(decided.plan)]
        parts = differences.parts(kept, observed.snapshot.jobs.keys)
        base = base or parts
        tree = differences.restored(differences.difference(parts, base), differences.whole(base))
        snapshot, forecasts = codec.rebuild(Snapshot, tree[0]), codec.rebuild(Forecasts, tree[1])
        found = codec.loads(codec.dumps(decided_again(again, snapshot, forecasts, tree[2])))
        assert first_difference(tree[3], found, snapshot.jobs.keys) is None


def test_cycles_are_chosen_by_number_and_by_time(opened: Callable[..., Site]) -> None:
    site = busy(opened())
    assert site.json("audit", "2")["cycles"] == 1
    assert site.json("audit", "-S", f"uts{int(site.cluster.time + 1)}")["cycles"] == 0
    assert "no inputs of cycle 999 are kept" in site.ask("audit", "2", "999", code=1)


def test_nothing_to_audit_is_said(opened: Callable[..., Site]) -> None:
    site = opened()
    assert site.ask("audit").startswith("No inputs are kept of such cycles")
    site.cycle(2)
    assert site.json("audit")["cycles"] == 1, "of cycles that wrote nothing, those of one in five minutes are kept"


def test_a_plan_that_was_changed_by_hand_is_found(opened: Callable[..., Site]) -> None:
    site = busy(opened())

    def better(kept: list[Any]) -> None:
        score = np.array(kept[4]["score"])
        score[2] = 1e6
        kept[4]["score"] = score

    changed(site, 3, better)
    job = inputs(site.ledger, 3)[0]["jobs"]["keys"][2][1]  # type: ignore[index]
    assert f"differs: score of job {job} was 1000000.0 and is " in site.ask("audit", code=1)
    found = json_of(site)
    assert [(each["cycle"], each["job"], each["field"]) for each in found["different"]] == [(3, job, "score")]
    assert found["same"] == found["cycles"] - 1


def json_of(site: Site, *arguments: str) -> Any:
    """What it prints of a ledger in which something is wrong."""
    return json.loads(site.ask("audit", "--json", *arguments, code=1))


def test_a_changed_input_is_found_too(opened: Callable[..., Site]) -> None:
    site = busy(opened())

    def later(kept: list[Any]) -> None:
        kept[0]["jobs"]["urgency"] = kept[0]["jobs"]["urgency"][::-1].copy()

    changed(site, 3, later)
    assert [each["cycle"] for each in json_of(site)["different"]] == [3]


@pytest.mark.parametrize("shift", ["np.random.default_rng().random()", "next(numbers)"])
def test_a_policy_that_is_not_deterministic_is_found(shift: str, opened: Callable[..., Site], tmp_path: Path) -> None:
    policy = own_policy(tmp_path, shift)
    site = busy(opened(policy=policy))
    config = configuration(tmp_path, policy)
    found = json_of(site, *config)
    assert found["different"], "its scores depend on how often it was asked"
    assert found["different"][0]["field"] == "score"


def test_a_policy_that_failed_fails_again(opened: Callable[..., Site], tmp_path: Path) -> None:
    policy = own_policy(tmp_path, "1 / (snapshot.cycle % 2)")
    site = opened(policy=policy)
    site.cluster.submit(b"#!/bin/sh\n#PLUG --checkpoint=USR1 --urgency=9\n", priority=1.0)
    site.cluster.start(1)
    busy(site)
    found = site.json("audit", *configuration(tmp_path, policy))
    assert found["same"] == found["cycles"] > 0


def test_another_code_is_named_where_the_plans_differ(opened: Callable[..., Site], tmp_path: Path) -> None:
    policy = own_policy(tmp_path, "1.0")
    site = busy(opened(policy=policy))
    config = configuration(tmp_path, policy)
    cycles = site.json("audit", *config)["same"]
    own_policy(tmp_path, "2.0")
    found = site.json("audit", *config)
    (why,) = found["not_again"]
    assert why["reason"] == "its plan is another one by another code of the policy"
    assert len(why["cycles"]) == cycles
    own_policy(tmp_path, "1.0 + 0")
    assert site.json("audit", *config)["same"] == cycles, "what still decides alike proves as much"


def test_a_file_that_is_not_configured_is_not_run(opened: Callable[..., Site], tmp_path: Path) -> None:
    policy = own_policy(tmp_path, "1.0")
    site = busy(opened(policy=policy))
    said = site.ask("audit", *configuration(tmp_path, "mlfs"))
    assert f"policy own cannot be made again: {policy} is not run, as the configuration does not name it" in said


def test_another_release_is_named_where_the_plans_differ(opened: Callable[..., Site]) -> None:
    site = busy(opened())

    def older(kept: list[Any]) -> None:
        kept[3]["slurmplug"] = "0.0.9"
        kept[4]["memory"] = []

    changed(site, 3, older)
    (why,) = site.json("audit")["not_again"]
    assert why["reason"].startswith("its plan is another one by another release of slurmplug (0.0.9 then, ")
    assert why["cycles"] == [3]


def test_a_cycle_whose_plan_was_not_kept_is_named(opened: Callable[..., Site]) -> None:
    site = busy(opened())
    changed(site, 3, lambda kept: kept.__delitem__(slice(3, 5)))
    assert "Cycle 3 could not be decided again: the release that decided it kept the inputs, not the plan." in site.ask(
        "audit"
    )


def test_a_policy_made_in_another_way_is_named(opened: Callable[..., Site]) -> None:
    site = opened()
    planned = Planned(lambda snapshot: Plan(score=-np.arange(len(snapshot.jobs), dtype=float)))
    site.scheduler.use(site.scheduler.config, planned, None)
    busy(site)
    assert "could not be decided again: policy planned was not made from a configuration." in site.ask("audit")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE cycles SET inputs = substr(inputs, 1, length(inputs) / 2) WHERE id = 3",
        "UPDATE cycles SET inputs = x'00', inputs_base = NULL WHERE id = 3",
    ],
)
def test_damaged_inputs_are_named_and_the_others_are_decided_again(damage: str, opened: Callable[..., Site]) -> None:
    site = busy(opened())
    site.ledger.db.execute(damage)
    assert "Cycle 3 could not be decided again: " in site.ask("audit", code=1)
    found = json_of(site)
    (why,) = found["not_again"]
    assert why["cycles"] == [3]
    assert why["damaged"]
    assert "is damaged" in why["reason"]
    assert found["same"] == found["cycles"] - 1


def test_inputs_of_another_shape_are_damaged(opened: Callable[..., Site]) -> None:
    site = busy(opened())
    changed(site, 3, lambda kept: kept[4].__setitem__("score", np.zeros(1)))
    changed(site, 4, lambda kept: kept[0].pop("jobs"))
    found = json_of(site)
    assert [(each["cycles"], each["damaged"]) for each in found["not_again"]] == [([3], True), ([4], True)]


def test_a_promoted_models_cycles_are_decided_again_by_that_model(opened: Callable[..., Site]) -> None:
    site, config = opened(), Config()
    model = like_shipped("promoted")
    promoted = policy_registry.promoted(config, model, policy_registry.policy(config))
    site.scheduler.use(site.scheduler.config, promoted, None)
    policy_models.add(site.ledger, model, model_files.encode(model), Decided("root", 1.0))
    found = busy(site).json("audit")
    assert found["same"] == found["cycles"] > 0
    assert [each["policy"] for each in found["policies"]] == ["dl2"]
    site.ledger.db.execute("DELETE FROM policy_models")
    said = site.ask("audit")
    assert f"policy dl2 cannot be made again: the promoted model {model.digest[:12]} is not kept any more" in said


def test_the_cycles_of_a_fallback_are_decided_again_by_it(opened: Callable[..., Site]) -> None:
    site = opened(policy="dl2")
    scheduler: Scheduler = site.scheduler
    fallback = policy_registry.fallback(scheduler.config, scheduler.policy, scheduler.policy)
    scheduler.use(scheduler.config, scheduler.policy, fallback)
    scheduler.policy.distance = lambda *_: 2.0  # type: ignore[attr-defined]
    found = busy(site).json("audit")
    assert found["same"] == found["cycles"] > 0
    assert [each["policy"] for each in found["policies"]] == ["mlf-h"]


def test_a_model_that_is_another_one_now_is_named(opened: Callable[..., Site], tmp_path: Path) -> None:
    path = tmp_path / "dl2.safetensors"
    model_files.write(shipped(), path)
    site = busy(opened(policy="dl2", policies={"dl2": {"model": str(path)}}))
    assert site.json("audit")["not_again"] == []
    path.unlink()
    assert f"policy dl2 cannot be made again: policies.dl2.model: model {path} cannot be read" in site.ask("audit")


def key(job_id: int) -> JobKey:
    return JobKey("test", job_id, 1)


STOP = Action("stop", key(1), Reason("target", {"value": 0.9}))
NOTED = {key(1): Reason("passed too often", {"by": OtherJob(key(2), float("nan"))})}


@pytest.mark.parametrize(
    ("one", "other", "job", "field", "values"),
    [
        ({"score": [1.0, 2.0]}, {"score": [1.0, 2.5]}, key(2), "score", ("2.0", "2.5")),
        ({"score": [0.0, 0.0]}, {"score": [0.0, -0.0]}, key(2), "score", ("0.0", "-0.0")),
        ({}, {"score": np.zeros(2, dtype=np.float32)}, None, "score", ("of type float64", "of type float32")),
        ({"actions": (STOP,)}, {}, key(1), "action", ("stop of job 1", "none")),
        (
            {"actions": (Action("resize", key(2), Reason("r"), gpus=2),)},
            {"actions": (Action("resize", key(2), Reason("r"), gpus=4),)},
            key(2), "gpus of the action resize", ("2", "4"),
        ),
        ({"notes": NOTED}, {}, key(1), "note", ('["passed too often", [["by", {"job": ["test", 2, ', "none")),
        ({"memory": {"load": np.ones(3)}}, {}, None, "memory load", ("<f8 (3,) ", "none")),
        ({"terms": {"P": np.ones(2)}}, {"terms": {"P": np.zeros(2)}}, None, "term P", ("<f8 (2,) ", "<f8 (2,) ")),
    ],
)  # fmt: skip
def test_the_first_difference_is_named_by_job_and_field(
    one: dict[str, Any], other: dict[str, Any], job: Any, field: str, values: tuple[str, str]
) -> None:
    def kept(given: dict[str, Any]) -> Any:
        plan = Plan(
            **{"score": np.zeros(2), **{**given, **({"score": np.array(given["score"])} if "score" in given else {})}}
        )
        return codec.loads(codec.dumps(as_kept(plan)))

    keys = (key(1), key(2))
    assert first_difference(kept(one), kept(one), keys) is None
    found = first_difference(kept(one), kept(other), keys)
    assert found is not None
    assert (found.job, found.field) == (job, field)
    assert found.recorded.startswith(values[0])
    assert found.again.startswith(values[1])
