"""Workloads by name, the CSV format, and what is said of a file that is none."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads import csv_format, rows
from slurmplug.sim.workloads.load import FORMATS, GENERATORS, WorkloadError, load, packaged

Write = Callable[[str, str], Path]
HEADING = "submit,name,gpus,iterations,speed"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return put


def only(path: Path) -> SimJob:
    (job,) = load(str(path)).jobs
    return job


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", packaged())
def test_the_small_workloads_come_with_slurmplug(name: str) -> None:
    workload = load(name)
    assert workload.name == name
    assert workload.nodes * workload.gpus_a_node == 16
    assert all(job.gpus <= 16 and len(job.accuracies) for job in workload.jobs)


def test_there_are_small_workloads() -> None:
    assert packaged() == ("small", "sweep")


def test_a_name_that_is_nothing_says_what_there_is() -> None:
    with pytest.raises(WorkloadError, match=r"no workload 'smal': name a file, gen:mlfs\|slaq.*small, sweep"):
        load("smal")


def test_a_file_of_an_unknown_kind_says_which_formats_there_are(write: Write) -> None:
    with pytest.raises(WorkloadError, match=r"unknown format; name it by csv:, pollux:"):
        load(str(write("x", "hello,world\n")))


def test_a_path_with_a_question_mark_is_a_path_where_there_is_such(write: Write) -> None:
    path = write("what?.csv", f"{HEADING}\n0,a,1,10,0.5\n")
    assert len(load(str(path)).jobs) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [({"load": 0.0}, "load of 0"), ({"load": float("nan")}, "load of nan"), ({"jobs": 0}, "0 jobs"),
     ({"seed": -1}, "seed -1")],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, float], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        load("gen:slaq", **arguments)  # type: ignore[arg-type]


def test_the_first_jobs_of_a_file_are_those_submitted_first(write: Write) -> None:
    path = write("w.csv", f"{HEADING}\n9,c,1,10,1\n1,a,1,10,1\n5,b,1,10,1\n")
    assert [job.name for job in load(str(path), jobs=2).jobs] == ["a", "b"]
    assert [job.submit for job in load(str(path), load=2.0).jobs] == [0.5, 2.5, 4.5]


# --- the format -----------------------------------------------------------------------------------------------------


def test_a_rate_alone_is_that_on_the_gpus_asked_for(write: Write) -> None:
    job = only(write("w.csv", f"{HEADING}\n0,a,4,10,0.5\n"))
    assert job.speed.at(4, 1) == 0.5
    assert (job.managed, job.stop, job.qos) == (True, "iterations", "normal")


def test_speeds_and_curves_may_stand_in_their_cells(write: Write) -> None:
    text = "submit,name,gpus,iterations,speed,curve,utility,parts\n"
    text += "0,a,4,10,1x1:1 4x1:3 4x2:2.5,1:2.5:0.1 10:0.5:0.9,50 0.001 3600,ps:0:2:100:0.5:;:4:2:100:0.5:0\n"
    job = only(write("w.csv", text))
    assert [job.speed.at(4, nodes) for nodes in (1, 2)] == pytest.approx([3, 2.5])
    assert (job.curve_at.tolist(), job.losses.tolist(), job.accuracies.tolist()) == ([1, 10], [2.5, 0.5], [0.1, 0.9])
    assert job.utility == (50, 0.001, 3600)
    assert [(part.role, part.gpus, part.parents) for part in job.parts] == [("ps", 0, ()), ("", 4, (0,))]


def test_speeds_and_curves_may_be_named_in_the_files_beside_it(write: Write) -> None:
    write("w.speeds.csv", "speed,gpus,nodes,rate\nfast,1,1,1\nfast,2,1,1.9\n")
    write("w.curves.csv", "curve,at,loss,accuracy\nc,1,,0.5\nc,2,,0.75\n")
    job = only(write("w.csv", "submit,name,gpus,iterations,speed,curve\n0,a,2,2,fast,c\n"))
    assert job.speed.at(2, 1) == pytest.approx(1.9)
    assert (job.accuracies.tolist(), len(job.losses)) == ([0.5, 0.75], 0)


def test_packed_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "w.csv.gz"
    path.write_bytes(gzip.compress(f"\ufeff# nodes = 3\n{HEADING}\n0,a,1,1,1\n".encode()))
    workload = load(str(path))
    assert (workload.name, workload.nodes, len(workload.jobs)) == ("w", 3, 1)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("x,a,1,10,1", r"line 2, column submit: is not a number: 'x'"),
        (",a,1,10,1", r"line 2, column submit: is missing"),
        ("0,a,-1,10,1", r"line 2, column gpus: is '-1', not from 0 to"),
        ("0,a,1.5,10,1", r"line 2, column gpus: is not a whole number: '1.5'"),
        ("0,a,1,0,1", r"line 2, column iterations: is '0', not from 1 to"),
        ("0,a,1,10,nan", r"line 2, column speed: 'nan' is neither a named speed nor a rate"),
        ("0,a,1,10,quick", r"line 2, column speed: 'quick' is neither a named speed nor a rate"),
        ("0,a,1,10,1x1:0", r"line 2, column speed: a speed needs rates above 0"),
        ("0,a,1,10,1x1:1 1x1:2", r"line 2, column speed: gives two rates"),
        ("inf,a,1,10,1", r"line 2, column submit: is not a number: 'inf'"),
        ("1_0,a,1,10,1", r"line 2, column submit: is not a number: '1_0'"),
        ("0,a\x1b[2J,1,10,1", r"line 2, column name: holds what cannot be printed: 'a\\\\x1b"),
        ("0,a,1,10", r"line 2: has 4 cells; the heading has 5"),
    ],
)
def test_a_bad_row_is_named_by_file_line_column_and_reason(write: Write, row: str, complaint: str) -> None:
    path = write("w.csv", f"{HEADING}\n{row}\n0,good,1,10,1\n")
    with pytest.raises(WorkloadError, match=complaint):
        load(str(path))
    kept = load(str(path), skip_bad=True)
    assert ([job.name for job in kept.jobs], kept.skipped) == (["good"], 1)


def test_where_all_rows_are_bad_it_is_said_that_they_were_left_out(write: Write) -> None:
    path = write("w.csv", f"{HEADING}\ninf,a,1,10,1\n0,a,1.5,10,1\n")
    with pytest.raises(WorkloadError, match="no job is left in it: 2 rows cannot be used"):
        load(str(path), skip_bad=True)


@pytest.mark.parametrize(
    ("column", "cell", "complaint"),
    [
        ("stop", "never", "column stop: is 'never', not one of iterations, optstop, target"),
        ("utility", "1 2", "column utility: is not three numbers"),
        ("curve", "2:1:1 1:1:1", "column curve: the iterations of a curve do not increase"),
        ("curve", "1:1: 2::1", "column curve: gives a loss, or an accuracy, at some iterations"),
        ("curve", "1:one:", "column curve: '1:one:' is neither a named curve nor points"),
        ("parts", "a:1:1:1:1:0", "column parts: 'a:1:1:1:1:0' is no ROLE"),
        ("gpus_max", "1", "column gpus_max: 0 to 1 GPUs is not a range around 2"),
        ("managed", "perhaps", "column managed: is 'perhaps'"),
    ],
)
def test_a_cell_that_makes_no_sense_is_named(write: Write, column: str, cell: str, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        load(str(write("w.csv", f"{HEADING},{column}\n0,a,2,10,1,{cell}\n")))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("submit,name,gpus,speed\n", "its heading lacks iterations"),
        (f"{HEADING},colour\n0,a,1,10,1,red\n", "no such column: 'colour'"),
        (f"{HEADING},gpus\n0,a,1,10,1,1\n", "its heading names a column twice"),
        (f"{HEADING}\n", "no job is left"),
        (f'{HEADING}\n0,"a,1,10,1\n', "line 2: unexpected end of data"),
        ("# nodes = many\n" + f"{HEADING}\n0,a,1,10,1\n", "# nodes = 'many' is not a whole number"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(write: Write, text: str, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        load(f"csv:{write('w.csv', text)}")


def test_what_has_no_end_is_not_read_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "FILE_BYTES", 10_000)
    monkeypatch.setattr(rows, "LINE_BYTES", 5_000)
    monkeypatch.setattr(rows, "MOST_ROWS", 100)
    packed = tmp_path / "bomb.csv.gz"
    packed.write_bytes(gzip.compress(f"{HEADING}\n".encode() + b"0,a,1,10,1\n" * 100_000))
    long = tmp_path / "long.csv"
    long.write_text(f"{HEADING}\n0,{'a' * 6000},1,10,1\n")
    with pytest.raises(WorkloadError, match="line 2: is longer than 5000 bytes"):
        load(f"csv:{long}", skip_bad=True)
    with pytest.raises(WorkloadError, match="has more than 100 rows"):
        load(f"csv:{packed}")
    monkeypatch.setattr(rows, "MOST_ROWS", 10**6)
    with pytest.raises(WorkloadError, match="is longer than 10000 bytes"):
        load(f"csv:{packed}")


@pytest.mark.parametrize("content", [b"\x1f\x8bbroken", b"submit,name\xff\n", b"\0"])
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=r"w\.csv"):
        load(f"csv:{path}")


def test_speeds_and_curves_that_jobs_share_are_written_once(tmp_path: Path) -> None:
    speed = Speed(np.array([1]), np.array([1]), np.array([2.0]))
    at, accuracies = np.array([1.0, 2.0]), np.array([0.5, 0.75])
    jobs = tuple(SimJob(f"j{i}", i, 1, 2, speed, curve_at=at, accuracies=accuracies) for i in range(5))
    csv_format.write(Workload("w", jobs), tmp_path / "w.csv")
    assert (tmp_path / "w.speeds.csv").read_text() == "speed,gpus,nodes,rate\ns0,1,1,2.0\n"
    assert (tmp_path / "w.curves.csv").read_text() == "curve,at,loss,accuracy\nc0,1.0,,0.5\nc0,2.0,,0.75\n"
    with pytest.raises(WorkloadError, match="cannot be written"):
        csv_format.write(Workload("w", jobs), tmp_path / "nowhere" / "w.csv")


def test_jobs_may_be_called_anything_that_can_be_printed(tmp_path: Path) -> None:
    speed = Speed(np.array([1]), np.array([1]), np.array([2.0]))
    names = ["#1", 'a "b", c', "=1+1", "naïve"]
    jobs = tuple(SimJob(name, i, 1, 2, speed) for i, name in enumerate(names))
    csv_format.write(Workload("w", jobs), tmp_path / "w.csv")
    assert [job.name for job in load(str(tmp_path / "w.csv")).jobs] == names


# --- the page -------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[4] / "docs" / "workloads.md").read_text()


def test_the_page_of_the_format_names_every_column() -> None:
    table = PAGE.split("| column | meaning |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(csv_format.COLUMNS)


def test_the_example_on_the_page_is_a_workload(write: Write) -> None:
    write("example.speeds.csv", "speed,gpus,nodes,rate\nresnet50,1,1,0.02\n")
    write("example.curves.csv", "curve,at,loss,accuracy\nc1,1,2,0.1\nc1,90,1,0.7\n")
    [example] = re.findall(r"```text\n(# nodes = .*?)```", PAGE, re.DOTALL)
    workload = load(str(write("example.csv", example)))
    assert (workload.nodes, workload.gpus_a_node, len(workload.jobs)) == (4, 4, 2)
    assert workload.jobs[1].accuracies.tolist() == [0.11, 0.62, 0.81]


def test_the_page_names_every_format_generator_and_workload_of_ours() -> None:
    for name in (*(f"`{each}:PATH`" for each in FORMATS), *(f"`gen:{each}" for each in GENERATORS)):
        assert name in PAGE
    assert all(f"`{name}`" in PAGE for name in packaged())
