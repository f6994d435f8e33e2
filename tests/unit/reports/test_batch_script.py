"""The request of a batch script, from what Slurm 22.05 printed of it (sbatch -v --test-only, sinfo)."""

import re
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster.port import Reservation
from slurmplug.cluster.sbatch import NodeGroup, PartitionNodes, parse_tested
from slurmplug.errors import ReadFailed, UsageError
from slurmplug.reports.batch_script import assumed, beyond_partition, directive_lines, request_of
from slurmplug.reports.job_request import JobRequest

PRINTED = """sbatch: defined options
sbatch: -------------------- --------------------
sbatch: cpus-per-task       : 2
sbatch: gres                : gres:gpu:2
sbatch: job-name            : my-name
sbatch: mem                 : 200
sbatch: nodes               : 2
sbatch: test-only           : set
sbatch: time                : 01:30:00
sbatch: verbose             : 1
sbatch: -------------------- --------------------
sbatch: end of defined options
sbatch: select/cons_res: common_init: select/cons_res loaded
sbatch: Job 1 to start at 1795551923 using 4 processors on nodes n[1-2] in partition gpu
"""
GROUPS = [
    NodeGroup("(null)", "gpu:4(S:0-1)", "n/a", "infinite", "n[1-2]", "4000"),
    NodeGroup("fast,new", "gpu:a100:8", "n/a", "infinite", "n[3-4]", "8000"),
]
NOW = 1_000.0
MAINTENANCE = Reservation("maintenance", frozenset({"n4"}), frozenset(), frozenset(), 0.0, 2 * NOW)
COURSE = Reservation("course", frozenset({"n2", "other"}), frozenset(), frozenset(), 2 * NOW, 3 * NOW)


def request(
    *options: str, without: str | tuple[str, ...] = (), text: bytes = b"", groups: Any = GROUPS, reservations: Any = ()
) -> JobRequest:
    """With these lines of options, in place of those of the same names."""
    left_out = {without} if isinstance(without, str) else set(without)
    names = {option.split(":")[0].strip() for option in options} | left_out
    kept = [line for line in PRINTED.splitlines() if line.removeprefix("sbatch: ").split(":")[0].strip() not in names]
    lines = [kept[0], *(f"sbatch: {option}" for option in options), *kept[1:]]
    tested, there = parse_tested("\n".join(lines)), PartitionNodes(groups, reservations)
    return request_of(Path("/home/ada/train.sh"), text, tested, there, user="ada", now=NOW)


def test_a_job_requests_what_sbatch_reads_in_its_script() -> None:
    found = request("account : lab", "qos : high", text=b"#!/bin/sh\n#PLUG --urgency=3\ntrain\n#PLUG --urgency=4\n")
    assert found == JobRequest(
        "ada", "n[1-4]", "gpu", "lab", "high", "my-name", gpus=4, cpus=4, memory=400.0, time_limit=5400.0,
        script=("#PLUG --urgency=3",), parts=2, apart=True,
    )  # fmt: skip


@pytest.mark.parametrize("said", ["1795551923 a using", "1795551923 on cluster c1 a using"])
def test_newer_releases_word_the_start_differently(said: str) -> None:
    tested = parse_tested(PRINTED.replace("1795551923 using", said))
    assert (tested.start, tested.cpus, tested.nodes, tested.partition) == (1795551923.0, 4, "n[1-2]", "gpu")


@pytest.mark.parametrize(
    ("option", "gpus", "gpu_type"),
    [
        ("gres : gres/gpu:a100:2", 4, "a100"),
        ("gpus : 5", 5, ""),
        ("gpus : a100:5", 5, "a100"),
        ("gpus-per-node : 3", 6, ""),
        ("gpus-per-task : 1", 2, ""),
        ("gpus-per-socket : 2", 4, ""),
        ("tres-per-task : gres/gpu:1", 2, ""),
        ("ntasks-per-gpu : 1", 2, ""),
        ("mem : 0?", 0, ""),
        ("exclusive : exclusive", 8, ""),
        ("exclusive : user", 0, ""),
    ],
)
def test_gpus_are_those_of_the_whole_job(option: str, gpus: int, gpu_type: str) -> None:
    found = request(option, without="gres")
    assert (found.gpus, found.gpu_type) == (gpus, gpu_type)


@pytest.mark.parametrize(
    ("option", "without", "parts", "apart"),
    [
        ("gpus : 5", ("gres", "nodes"), 5, False),
        ("gpus : 5", ("gres",), 2, True),
        ("gpus-per-node : 3", ("gres", "nodes"), 2, True),
        ("ntasks : 3", ("gres", "nodes"), 3, False),
        ("cpus-per-task : 4", ("gres", "nodes"), 1, False),
    ],
)
def test_a_job_is_in_parts_on_nodes_of_their_own_if_it_states_their_number_or_something_of_each(
    option: str, without: tuple[str, ...], parts: int, apart: bool
) -> None:
    found = request(option, without=without)
    assert (found.parts, found.apart) == (parts, apart)


@pytest.mark.parametrize(
    ("option", "memory"),
    [("mem-per-cpu : 100M", 400.0), ("mem-per-gpu : 1G", 4096.0), ("mem : 1G", 2048.0), ("mem : 0?", 8000.0)],
)
def test_memory_is_that_of_the_whole_job(option: str, memory: float) -> None:
    assert request(option, without="mem").memory == memory


@pytest.mark.parametrize(
    ("option", "nodes"),
    [
        ("constraint : fast", "n[3-4]"),
        ("constraint : slow", ""),
        ("gres : gpu:a100:1", "n[3-4]"),
        ("nodelist : n[2-3]", "n[2-3]"),
        ("nodelist : n4", "n[1-4]"),
        ("exclude : n[2-3]", "n[1,4]"),
    ],
)
def test_it_runs_on_nodes_with_its_features_and_type_of_gpu_that_it_allows(option: str, nodes: str) -> None:
    assert request(option).nodes == nodes


@pytest.mark.parametrize(
    ("named", "nodes", "begin"), [("", "n[1-3]", None), ("maintenance", "n[4]", None), ("gone,course", "n[2]", 2 * NOW)]
)
def test_it_runs_on_the_nodes_of_its_reservation_or_on_those_of_none(
    named: str, nodes: str, begin: float | None
) -> None:
    found = request(*([f"reservation : {named}"] if named else []), reservations=(MAINTENANCE, COURSE))
    assert (found.nodes, found.begin) == (nodes, begin)


def test_a_reservation_that_is_over_is_said() -> None:
    with pytest.raises(UsageError, match="the reservation course is over, or Slurm does not show it"):
        request("reservation : course", reservations=(MAINTENANCE,))


@pytest.mark.parametrize(("option", "begin"), [("begin : 5000", 5_000.0), ("begin : 500", None), ("hold : set", None)])
def test_it_begins_when_it_may(option: str, begin: float | None) -> None:
    assert request(option).begin == begin


@pytest.mark.parametrize(("limit", "beyond"), [("infinite", None), ("2:00:00", None), ("1:00:00", 3_600.0)])
def test_a_time_limit_beyond_the_partitions_is_said(limit: str, beyond: float | None) -> None:
    there = PartitionNodes([each._replace(limit=limit) for each in GROUPS])
    assert beyond_partition(request(), there) == beyond
    said = " ".join(assumed({}, beyond))
    assert ("longer than that of its partition (01:00:00)" in said) == (beyond is not None)


def test_what_is_assumed_of_it_is_said() -> None:
    options = {"dependency": "afterok:7\x1b", "hold": "set", "array": "0-9%2", "gres": "gpu:1"}
    assert [sentence.split(":")[0] for sentence in assumed(options)] == [
        "Its dependency afterok",
        "It would be held",
        "Each element of the array is such a job; the times are those of the first one, as if it were alone.",
    ]
    assert "afterok:7\\x1b is assumed to be fulfilled" in next(assumed(options))


@pytest.mark.parametrize(
    ("default", "limit", "seconds"),
    [("n/a", "infinite", None), ("30:00", "2:00:00", 1800.0), ("n/a", "1-00:00:00", 86_400.0)],
)
def test_without_a_time_limit_it_has_its_partitions(default: str, limit: str, seconds: float | None) -> None:
    groups = [each._replace(default_limit=default, limit=limit) for each in GROUPS]
    assert request(without="time", groups=groups).time_limit == seconds


def test_its_name_is_the_scripts_where_it_has_none() -> None:
    assert request(without="job-name").name == "train.sh"


def test_directives_are_read_up_to_the_first_command() -> None:
    assert directive_lines(b"#!/bin/sh\n #PLUG --a=\xff\n\nx\n#PLUG --b=1") == ("#PLUG --a=\ufffd",)
    assert directive_lines(b"#PLUG --" + b"x" * 2000) == ()


def test_what_sbatch_refuses_is_said_in_its_words() -> None:
    with pytest.raises(UsageError, match="sbatch --test-only refuses this job: Invalid partition name specified"):
        parse_tested(
            "sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition name specified\n"
        )


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must start\n",
            "This does not look like a batch script.  The first line must start",
        ),
        ("sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n", "unrecognized option"),
        ('sbatch: error: "a\x1b" is not a valid node count\n', '"a\\x1b" is not a valid node count'),
    ],
)
def test_what_sbatch_itself_refuses_is_said_whole(printed: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"sbatch --test-only refuses this job: {said}")):
        parse_tested(printed)


def test_heterogeneous_jobs_are_not_estimated() -> None:
    with pytest.raises(UsageError, match="heterogeneous"):
        parse_tested(PRINTED + PRINTED)


@pytest.mark.parametrize("text", ["", PRINTED.replace("1795551923", "soon"), PRINTED.replace("defined", "other")])
def test_what_is_not_known_of_sbatch_is_an_error(text: str) -> None:
    with pytest.raises(ReadFailed, match="sbatch"):
        parse_tested(text)
