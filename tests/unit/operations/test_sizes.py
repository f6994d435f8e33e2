"""A job that has another size than it asked for: what it asked for is known, and given back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.plan import Reason
from policies.snapshot import JobKey
from slurmplug.cluster.port import ResourceRequest
from slurmplug.daemon.reset import reset_recorded
from slurmplug.operations import sizes
from slurmplug.operations.request_update import update_fields
from slurmplug.operations.shape import Shape
from slurmplug.operations.steps import with_gpus
from slurmplug.operations.values import GPU_FIELDS, Operation, OperationOutcome, PendingResizeFacts
from tests.moving import MakeSite, MovingSite
from tests.unit.operations.test_request_update import request
from tests.unit.operations.test_restart import goes_on, until_requeued

SCRIPT = b"#PLUG --gpus=1..8 --max-iterations=9\n"
ASKED = {"gpus": 2, "cpus": 5, "memory": 1000.0}


@pytest.fixture
def site(make_site: MakeSite) -> MovingSite:
    """Job 1 waits, with two GPUs and what cannot be divided by two."""
    one = make_site(guardrails={"size_interval": 0.0})
    one.cluster.submit(SCRIPT, **ASKED)
    return one


def shape(site: MovingSite) -> dict[str, Any]:
    return {name: site.cluster.jobs[1][name] for name in ASKED}


def resize(site: MovingSite, gpus: int) -> None:
    site.cycle(kind="resize", gpus=gpus)
    site.cycle()
    assert site.result() == "done"


def test_what_it_asked_for_is_known_through_several_sizes_and_comes_back_exactly(site: MovingSite) -> None:
    for gpus in (1, 3, 4, 1):
        resize(site, gpus)
        [size] = site.ledger.past(site.cluster.time, 0.0, ()).sizes.values()
        assert (size.asked, size.given, shape(site)["gpus"]) == (2, gpus, gpus)
    resize(site, 2)
    assert shape(site) == ASKED
    assert site.ledger.past(site.cluster.time, 0.0, ()).sizes == {}


def test_reset_gives_it_back_once(site: MovingSite) -> None:
    resize(site, 4)
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == [1]
    assert shape(site) == ASKED
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == []
    assert site.ledger.past(site.cluster.time, 0.0, ()).sizes == {}


def test_reset_in_the_middle_of_a_second_change_goes_back_to_what_it_asked_for(site: MovingSite) -> None:
    resize(site, 4)
    site.cycle(kind="resize", gpus=1)
    assert site.step() == "rewrite"
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == [1]
    assert shape(site) == ASKED


def test_what_its_user_has_changed_since_is_left(site: MovingSite) -> None:
    resize(site, 4)
    site.cluster.jobs[1]["cpus"] = 16
    reset_recorded(site.ledger, site.cluster)
    assert shape(site) == {**ASKED, "cpus": 16}


def test_a_number_of_gpus_that_its_user_has_set_since_is_what_it_asks_for(site: MovingSite) -> None:
    resize(site, 4)
    site.cluster.jobs[1]["gpus"] = 3
    reset_recorded(site.ledger, site.cluster)
    assert shape(site)["gpus"] == 3


def test_one_that_runs_keeps_its_size_and_gets_its_own_back_when_it_waits_again(site: MovingSite) -> None:
    resize(site, 4)
    site.cluster.start(1)
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == []
    site.cluster.jobs[1] |= {"state": "PENDING", "start": float("nan"), "restarts": 1}
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == [1]
    assert shape(site)["gpus"] == 2


@given(
    nodes=st.integers(1, 4),
    each=st.integers(1, 4),
    to=st.builds(Shape, st.integers(1, 4), st.integers(1, 4)),
    options=st.sampled_from(
        [{}, {"cpus_follow_gpus": True}, {"memory_requested": False}, {"tasks_per_node": 1}, {"gres": "gpu:a100:{}"}]
    ),
)
def test_an_update_never_sets_nodes_without_gpus(nodes: int, each: int, to: Shape, options: Any) -> None:
    """NumNodes alone shrinks a job that has just started; with GPUs beside it Slurm refuses the whole."""
    shape = {"gres": options.get("gres", "gpu:{}").format(each), "nodes": nodes, "gpus": nodes * each, "tasks": nodes}
    job: ResourceRequest = request(**{**options, **shape})
    for fields in update_fields(job, to):
        assert "NumNodes" not in fields or not GPU_FIELDS.isdisjoint(fields)


def test_what_is_left_of_an_update_has_the_present_gpus_beside_nodes_or_no_nodes() -> None:
    alone = {"NumNodes": "1-1", "NumTasks": "1"}
    assert with_gpus(alone, request(gres="gres/gpu:a100:2")) == {**alone, "Gres": "gpu:a100:2"}
    assert with_gpus(alone, request(gres="")) == {"NumTasks": "1"}
    assert with_gpus(alone, None) == {"NumTasks": "1"}
    both = {"NumNodes": "1-1", "TresPerJob": "gres/gpu:2"}
    assert with_gpus(both, None) == both


def test_more_tasks_with_as_many_gpus_each_are_another_size() -> None:
    asked = request(gres="", gres_per_task="gres:gpu:1", tasks=2, max_nodes=0, cpus_per_task=2)
    goal, undo = update_fields(asked, Shape(1, 4))
    facts = PendingResizeFacts(2, 4, sizes.given((2, 4), goal, undo, None))
    key = JobKey("c", 1, 0)
    done = Operation(
        "1", "resize", key, Reason("share"), 0.0, "ended", 0.0, 0.0, 0, outcome=OperationOutcome.DONE, facts=facts
    )
    assert sizes.given_sizes([done])[key].asked_fields == undo


def test_one_that_was_resized_while_it_ran_gets_its_own_size_back_when_it_waits_again(make_site: MakeSite) -> None:
    site = make_site()
    job = until_requeued(site)
    goes_on(site, job)
    assert (site.result(), site.cluster.jobs[job]["gpus"]) == ("done", 4)
    [size] = site.ledger.past(site.cluster.time, 0.0, ()).sizes.values()
    assert (size.asked, size.given) == (2, 4)
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == []
    site.cluster.jobs[job] |= {"state": "PENDING", "start": float("nan"), "restarts": 2}
    assert list(reset_recorded(site.ledger, site.cluster).shapes) == [job]
    assert site.cluster.jobs[job]["gpus"] == 2
