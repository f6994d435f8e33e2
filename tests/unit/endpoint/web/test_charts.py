"""The pages with charts hold what the ledger has: jobs by node, load, stops, savings, forecasts."""

import re
import time
from pathlib import Path

import pytest

from slurmplug.endpoint.web.time_axis import window
from tests.ledgers import Site
from tests.web_site import BOB, HOSTILE, WebSite, marks, visited

TARGET = b"#!/bin/sh\n#PLUG --target=accuracy>=0.7 --stop=target --max-iterations=40 --type=digits\ntrain\n"
PLAIN = b"#!/bin/sh\n#PLUG --max-iterations=10 --type=digits\ntrain\n"


def run_to_its_end(site: Site, script: bytes, node: str, **given: object) -> int:
    """A job that reports ten times; one with a target is stopped."""
    job = site.cluster.submit(script, **given)
    site.cycle()
    site.cluster.start(job, node)
    site.cycle()
    for iteration in range(1, 11):
        site.cluster.time += 60.0
        site.cluster.say(job, iteration=iteration, accuracy=0.5 + iteration / 40, loss=1 / iteration)
        site.cycle()
        if site.cluster.asked(job):
            break
    site.cluster.end(job)
    site.cycle(2)
    return job


def fill(web: WebSite) -> None:
    """Ada's job 1 did all, 2 was stopped; bob's 3 did all and 4 runs."""
    site = web.site
    run_to_its_end(site, PLAIN, "n2", name=HOSTILE)
    run_to_its_end(site, TARGET, "n[9-10]", name="stopped-early")
    run_to_its_end(site, PLAIN, "n1", uid=BOB, user="bob", name="secret-of-bob")
    plain = site.cluster.submit(b"#!/bin/sh\ntrain\n", uid=BOB, user="bob", name="secret-of-bob")
    site.cluster.start(plain, "n1")
    site.cycle(2)


def savings(web: WebSite, user: str = "") -> str:
    """The page of savings, once they are computed."""
    until = time.monotonic() + 60
    while "being computed" in (page := web.page("/savings", user)) and time.monotonic() < until:
        time.sleep(0.05)
    return page


def test_the_chart_of_nodes_has_each_job_on_its_nodes(web: WebSite) -> None:
    [chart] = web.charts("/nodes")
    stopped = marks(chart, "rect", "stopped")
    assert len(stopped) == 2  # on two nodes
    assert stopped[0].startswith("2: stopped-early, ada, 1 GPU, COMPLETED, ")
    assert [text.partition(":")[0] for text in marks(chart, "rect", "managed")] == ["3", "1"]
    [runs] = marks(chart, "rect", "plain")
    assert runs.startswith("4: ")
    assert runs.endswith(" to now")
    labels = [each.text for each in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert [label for label in labels if (label or "").startswith("n")] == ["n1", "n2", "n9", "n10"]


def test_it_leads_to_the_jobs(web: WebSite) -> None:
    page = web.page("/nodes")
    for job in ("1", "2", "3", "4"):
        assert page.count(f'href="job?id={job}"') >= 2


def test_jobs_of_before_are_not_in_it(web: WebSite) -> None:
    web.site.cycle(seconds=7_200.0)
    [chart] = web.charts("/nodes?last=hour")
    assert [text[:2] for kind in ("plain", "managed", "stopped") for text in marks(chart, "rect", kind)] == ["4:"]


def test_the_chart_of_the_load_has_the_jobs_of_the_cycles(web: WebSite) -> None:
    load, stops = web.charts("/load?last=hour")
    lines = {each.get("class"): each.get("points") for each in load.iter("{http://www.w3.org/2000/svg}polyline")}
    assert lines.keys() == {"pending", "running"}
    assert lines["running"] != lines["pending"]
    [told] = marks(stops, "rect", "done")
    assert told.startswith("1 stop done, ")
    assert marks(stops, "rect", "prevented") == []


def test_overload_is_kept_from_its_first_to_its_last_cycle(tmp_path: Path) -> None:
    with visited(tmp_path) as web:
        site = web.site
        waiting = site.cluster.submit(reason="Resources")
        site.cycle(2)
        assert site.ledger.query("SELECT * FROM overloads") == []
        began = site.cycle().started  # the third in a row
        last = site.cycle(2).started
        assert site.ledger.query("SELECT * FROM overloads") == [{"began": began, "last": last}]
        site.cluster.start(waiting)
        site.cycle(4)
        over = site.ledger.query("SELECT * FROM overloads")
        site.cluster.submit(reason="Resources")
        site.cycle(3)
        assert len(site.ledger.query("SELECT * FROM overloads")) == len(over) + 1 == 2
        load = web.charts("/load")[0]
        assert len(marks(load, "rect", "overload")) == 2
        assert "overloaded 2 times" in web.page("/load")


def test_savings_are_those_of_the_command(web: WebSite) -> None:
    page = savings(web)
    total = web.site.json("savings", "--by", "week")["done"]["total"]
    assert f"{total['gpu_hours']['value']:.1f} (" in page
    assert "by 1 stop." in page
    assert "<td>target</td>" in page
    [chart] = web.charts("/savings")
    [told] = marks(chart, "rect", "done")
    assert f": {total['gpu_hours']['value']:.6g} GPU hours" in told


def test_forecasts_stand_beside_what_came(web: WebSite) -> None:
    page = web.page("/forecasts")
    jobs = {job["jobid"]: job for job in web.site.json("acct", "-a", "-S", "uts1000000000")["jobs"]}
    compared = [job for job in ("1", "3") if jobs[job]["predicted"] is not None]
    run_times = web.charts("/forecasts")[0]
    told = marks(run_times, "circle", "inside") + marks(run_times, "circle", "outside")
    assert sorted(text.partition(":")[0] for text in told) == compared
    assert compared
    assert "2: predicted" not in page  # it was stopped
    assert f"{len(compared)} job" in page


@pytest.mark.parametrize("path", ["/nodes", "/load", "/savings", "/forecasts"])
def test_where_slurm_hides_jobs_nothing_of_anothers_is_in_any_chart(private: WebSite, path: str) -> None:
    savings(private, "ada")
    hers, his, nobodys = private.page(path, "ada"), private.page(path, "bob"), private.page(path)
    assert "secret" not in hers
    assert not re.search(r'job\?id=[34]"|>[34]:', hers)
    assert not re.search(r'job\?id=[12]"|>[12]:', his)
    assert "stop done" not in his + nobodys
    assert not re.search(r"job\?id=\d|>\d:|GPU hours \(", nobodys)
    if path == "/nodes":
        assert "secret-of-bob" in his
        assert "secret-of-bob" in private.page(path, "op")


@pytest.mark.parametrize("path", ["/nodes", "/load", "/savings", "/forecasts"])
def test_what_users_write_is_escaped_and_nothing_forbidden_is_needed(web: WebSite, path: str) -> None:
    page = savings(web) if path == "/savings" else web.page(path)
    assert "<script" not in page
    assert "\u202e" not in page
    assert " style=" not in page


@pytest.mark.parametrize("path", ["/nodes?last=<script>", "/load?last=", "/load?last=month", "/nodes?last=week"])
def test_a_time_that_there_is_not_is_the_last_day(web: WebSite, path: str) -> None:
    assert "<h1>" in web.page(path)
    assert window("<script>", 1e9).name == "day"


@pytest.mark.parametrize("name", ["hour", "day", "week", "month"])
def test_the_axis_of_time_has_some_round_times(name: str) -> None:
    one = window(name, 1_700_000_123.0)
    axis = one.axis()
    assert 3 <= len(axis) <= 11
    assert all(one.start <= at <= one.end for at in axis)
    assert len({one.text(at) for at in axis}) >= len(axis) - 1


def test_a_new_ledger_has_pages_without_charts(tmp_path: Path) -> None:
    with visited(tmp_path) as web:
        for path in ("/nodes", "/load", "/forecasts"):
            assert web.charts(path) == []
        assert savings(web).count("<p>None.</p>") == 2
