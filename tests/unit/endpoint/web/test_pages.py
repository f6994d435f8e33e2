"""The web pages: what each holds, to whom, with what users write escaped."""

import math
import re
from pathlib import Path

import pytest

from slurmplug.endpoint.web.pages import ROWS
from tests.web_site import BOB, HOSTILE, WebSite, marks, places, visited

CURVE = {each: 0.9 - 0.6 * math.exp(-each / 15) for each in range(1, 31)}
DIRECTIVES = b"#!/bin/sh\n#PLUG --target=accuracy>=0.88 --stop=target --max-iterations=90\ntrain\n"
PAGES = ("/", "/job?id=1", "/job?id=3")


def fill(web: WebSite) -> None:
    """Ada's job 1 trains and 2 waits; bob's 3 waits."""
    cluster = web.site.cluster
    runs = cluster.submit(DIRECTIVES, name=HOSTILE)
    cluster.start(runs)
    cluster.submit(b"#!/bin/sh\n#PLUG --urgency=2\ntrain\n", name=HOSTILE)
    cluster.submit(b"#!/bin/sh\n#PLUG --deadline=1h\ntrain\n", uid=BOB, user="bob", name="secret-of-bob")
    web.site.train(runs, CURVE)
    web.site.cycle(2)


class TestWhatUsersWrite:
    @pytest.mark.parametrize("path", PAGES)
    def test_is_escaped_on_every_page(self, web: WebSite, path: str) -> None:
        page = web.page(path)
        assert "<script" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page

    def test_is_shown_all_the_same(self, web: WebSite) -> None:
        shown = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34;&amp;{{7*7}}\\x1b\\u202e"
        assert shown in web.page("/")
        assert shown in web.page("/job?id=1")

    @pytest.mark.parametrize("path", ["/?user=%3Cscript%3E", "/job?id=%3Cscript%3E", "/%3Cscript%3E"])
    def test_in_an_address_is_escaped_too(self, web: WebSite, path: str) -> None:
        assert "<script" not in web.ask(path).text


class TestQueue:
    def test_has_each_job_in_order_with_its_rank_and_its_terms(self, web: WebSite) -> None:
        page, jobs = web.page("/"), web.site.json("queue")["jobs"]
        assert re.findall(r'href="job\?id=(\d+)"', page) == [job["jobid"] for job in jobs] == ["1", "3", "2"]
        for job in jobs:
            assert f"<td>{job['rank']:.6g}<details><summary>why</summary>" in page
        [terms] = [job["terms"] for job in web.site.json("prio")["jobs"] if job["jobid"] == "3"]
        assert ", ".join(f"{name} {value:.4g}" for name, value in terms.items()) in page
        assert "accuracy 0.8188" in page
        assert "1 job runs, 2 are pending." in page

    def test_can_be_that_of_one_user(self, web: WebSite) -> None:
        page = web.page("/?user=bob")
        assert "secret-of-bob" in page
        assert 'href="job?id=1"' not in page

    def test_is_shown_in_parts(self, web: WebSite) -> None:
        for _ in range(ROWS):
            web.site.cluster.submit(name="one-of-many")
        web.site.cycle()
        first, second = web.page("/"), web.page(f"/?from={ROWS}")
        assert f"from={ROWS}&amp;user=" in first
        assert "from=0&amp;user=" in second
        assert (first.count("<tr>"), second.count("<tr>")) == (ROWS + 1, 3 + 1)

    @pytest.mark.parametrize("first", ["x", "-1", "9" * 30, "١"])
    def test_begins_at_its_beginning_for_a_place_that_is_none(self, web: WebSite, first: str) -> None:
        assert 'href="job?id=1"' in web.page(f"/?from={first}")

    def test_of_a_ledger_without_a_cycle_is_empty(self, tmp_path: Path) -> None:
        with visited(tmp_path) as new:
            assert "No jobs." in new.page("/")


class TestJob:
    def test_has_the_story_that_why_tells(self, web: WebSite) -> None:
        page = web.page("/job?id=3")
        [told] = web.site.json("why", "3")["jobs"]
        for paragraph in told["story"]:
            assert f"<h2>{paragraph['about']}</h2>" in page
            for sentence in paragraph["sentences"]:
                assert sentence.replace("'", "&#39;").replace(">", "&gt;") in page

    def test_draws_the_curve_that_why_has_as_data(self, web: WebSite) -> None:
        [told] = web.site.json("why", "1", "--plot")["jobs"]
        curve = told["curve"]
        [chart] = web.charts("/job?id=1")
        assert marks(chart, "circle", "reported") == [
            f"iteration {at:.15g}: {value:.6g}" for at, value in curve["points"]
        ]
        assert marks(chart, "line", "target") == ["target 0.88"]
        assert marks(chart, "line", "stop") == [f"predicted stop at iteration {curve['stop']['iteration']:.0f}"]
        fan = places(chart, "polygon", "fan")
        assert len(fan) == 2 * len(curve["forecast"])
        median, reported = places(chart, "polyline", "median"), places(chart, "polyline", "reported")
        assert median[0] == reported[-1]
        (x0, y0), (x1, y1) = reported[0], reported[-1]
        (first, low), (last, high) = curve["points"][0], curve["points"][-1]
        for (x, y), (at, *values) in zip(median, curve["forecast"], strict=True):
            assert x == pytest.approx(x0 + (at - first) / (last - first) * (x1 - x0), abs=0.5)
            assert y == pytest.approx(y0 + (values[1] - low) / (high - low) * (y1 - y0), abs=0.5)
        assert all(f"<td>{median:.6g}</td>" in web.page("/job?id=1") for _, _, median, _ in curve["forecast"])

    def test_that_reported_nothing_has_no_curve(self, web: WebSite) -> None:
        assert web.charts("/job?id=2") == []

    def test_that_is_an_array_leads_to_its_elements(self, web: WebSite) -> None:
        for task in range(2):
            web.site.cluster.start(web.site.cluster.submit(array_id=40, array_task=task, array_tasks=str(task)))
        web.site.cycle()
        page = web.page("/job?id=40")
        assert 'href="job?id=40_0"' in page
        assert "<h1>Job 40_1" in web.page("/job?id=40_1")

    @pytest.mark.parametrize("wanted", ["77", "", "x", "1;2"])
    def test_that_is_not_known_is_said_so(self, web: WebSite, wanted: str) -> None:
        response = web.ask(f"/job?id={wanted}")
        assert response.status_code == 404
        assert "slurmplug knows no job 77" in response.text or "Bad job specified" in response.text


class TestWhoWaits:
    def test_is_each_user_with_waiting_jobs_their_gpus_and_the_longest_wait(self, web: WebSite) -> None:
        cluster = web.site.cluster
        cluster.submit(uid=BOB, user="bob", gpus=4, elements=3)
        cluster.submit(uid=BOB, user="bob", gpus=2, eligible=cluster.time + 3_600.0)
        cluster.time += 600.0
        web.site.cycle()
        rows = waiting(web.page("/load"))
        assert [(user, jobs, gpus) for user, _, jobs, gpus, _ in rows] == [("bob", "5", "15"), ("ada", "1", "1")]
        assert all(wait.startswith("00:1") for *_, wait in rows)

    def test_is_only_the_asker_where_slurm_hides_jobs(self, private: WebSite) -> None:
        assert [row[0] for row in waiting(private.page("/load", "ada"))] == ["ada"]
        assert [row[0] for row in waiting(private.page("/load", "op"))] == ["ada", "bob"]
        assert waiting(private.page("/load")) == []

    def test_is_nobody_where_all_jobs_run(self, tmp_path: Path) -> None:
        with visited(tmp_path) as web:
            web.site.cycle()
            assert "No job is waiting." in web.page("/load")


def waiting(page: str) -> list[list[str]]:
    """The cells of the table of who waits."""
    table = page.partition("<h2>Who waits</h2>")[2].partition("</section>")[0]
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", table)]


class TestWhoSeesWhat:
    def test_where_slurm_hides_jobs_nothing_of_anothers_is_in_any_page(self, private: WebSite) -> None:
        for path in PAGES[:2]:
            page = private.page(path, "ada")
            assert "You are ada." in page
            assert "bob" not in page
        assert 'href="job?id=3"' not in private.page("/", "ada")
        hidden, never = private.ask("/job?id=3", "ada"), private.ask("/job?id=77", "ada")
        assert hidden.status_code == never.status_code == 404
        assert hidden.text.replace("job 3", "job 77").replace("Job 3", "Job 77") == never.text

    def test_a_job_that_is_ahead_is_not_named(self, private: WebSite) -> None:
        assert "Ahead of it: a job that Slurm does not show you." in private.page("/job?id=2", "ada")
        assert "Ahead of it: job 3" in private.page("/job?id=2", "op")

    def test_an_operator_sees_all(self, private: WebSite) -> None:
        page = private.page("/", "op")
        assert "secret-of-bob" in page
        assert 'href="job?id=1"' in page

    def test_who_has_not_signed_in_sees_what_anybody_sees(self, private: WebSite) -> None:
        page = private.page("/")
        assert "nobody has signed in" in page
        assert "job?id=" not in page
        assert private.ask("/job?id=1").status_code == 404

    def test_which_is_all_where_slurm_hides_nothing(self, web: WebSite) -> None:
        assert "secret-of-bob" in web.page("/")
        assert "secret-of-bob" in web.page("/", "ada")

    @pytest.mark.parametrize("name", ["eve", "root", "ada, op", "../op", "op\u00e9", "0"])
    def test_who_is_no_account_here_or_root_is_refused(self, private: WebSite, name: str) -> None:
        response = private.ask("/", name)
        assert response.status_code == 403
        assert "job?id=" not in response.text


class TestAnswers:
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
    def test_only_reading_is_answered(self, web: WebSite, method: str) -> None:
        response = web.client.open("/job?id=1", method=method)
        assert response.status_code == 405
        assert response.headers["Allow"] == "GET, HEAD"
        assert web.client.head("/").status_code == 200

    @pytest.mark.parametrize("path", [*PAGES, "/job?id=77", "/nowhere", "/static/style.css", "/static/../app.py"])
    def test_every_answer_lets_the_browser_load_nothing_else_and_keep_nothing(self, web: WebSite, path: str) -> None:
        headers = web.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
        assert "Set-Cookie" not in headers
        assert "Server" not in headers

    @pytest.mark.parametrize("path", PAGES)
    def test_no_page_needs_what_that_forbids(self, web: WebSite, path: str) -> None:
        page = web.page(path)
        assert " style=" not in page
        assert "<style" not in page
        assert "javascript:" not in page
        assert "://" not in page.replace("http://www.w3.org/2000/svg", "")

    def test_of_one_who_asks_too_often_no_more_is_made_for_a_while(self, web: WebSite) -> None:
        answers = [web.ask("/nowhere" if n % 2 else "/", "ada").status_code for n in range(140)]
        assert answers.count(429) == 10
        assert web.ask("/", "bob").status_code == 200

    def test_a_ledger_that_cannot_be_read_is_said_so(self, web: WebSite) -> None:
        web.site.path.rename(web.site.path.with_name("elsewhere"))
        response = web.ask("/")
        assert response.status_code == 503
        assert str(web.site.path) not in response.text

    def test_a_dead_daemon_is_said_on_every_page(self, web: WebSite) -> None:
        assert "The daemon is not alive; this is as of" in web.page("/")
