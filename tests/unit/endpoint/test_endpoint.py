"""The endpoint: the same reports over the network, each user what Slurm would show, and unknown clients limited."""

import contextlib
import http.client
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from policies.plan import Action, OtherJob, Plan, Reason
from policies.policy import Policy
from policies.snapshot import Snapshot
from slurmplug.config.schema import Config
from slurmplug.endpoint import munge, wire
from slurmplug.endpoint.changes import recorded
from slurmplug.endpoint.connections import ConnectionLimits, Connections
from slurmplug.endpoint.fair_queue import FairQueue
from slurmplug.endpoint.limits import RateLimit
from slurmplug.endpoint.munge import Sender
from slurmplug.endpoint.report_makers import LocalReportMaker, ReportMaker
from slurmplug.endpoint.server import EndpointLimits, EndpointServer, EndpointThread, RequestHandler
from slurmplug.endpoint.viewers import EXPIRE_SECONDS, REFRESH_SECONDS, Viewers
from slurmplug.errors import EndpointError, LedgerError, NotConfirmed, ReadFailed, SteppedDown
from slurmplug.ledger.directive_changes import Author, ChangeRequest
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports.job_request import JobRequest
from tests.builders import CLUSTER
from tests.ledgers import Planned, Site, run

ADA, BOB = 1001, 1002
LIMITS = EndpointLimits()


class FakeMunge:
    """munged: who encodes is `uid`; a credential is good once."""

    def __init__(self) -> None:
        self.uid = 0
        self.issued: dict[str, Sender] = {}
        self.made = 0

    def encode(self, payload: bytes, socket: Path | None) -> str:
        self.made += 1
        self.issued[f"MUNGE:{self.made}:"] = Sender(self.uid, payload)
        return f"MUNGE:{self.made}:"

    def decode(self, credential: str, socket: Path | None) -> Sender:
        if credential not in self.issued:
            raise EndpointError("Replayed credential")
        return self.issued.pop(credential)


class Slurm:
    """Reports who may see all jobs."""

    def __init__(self, private: str = "jobs") -> None:
        self.private, self.levels, self.reachable, self.asked = private, {"root": "Administrator"}, True, 0

    def private_data(self) -> frozenset[str]:
        self.asked += 1
        if not self.reachable:
            raise ReadFailed("sacctmgr exits 1")
        return frozenset({self.private})

    def admin_levels(self) -> Mapping[str, str]:
        return self.levels


class Served:
    """A site's ledger behind a running endpoint, and commands on a login node."""

    def __init__(self, site: Site, folder: Path, server: EndpointServer, slurm: Slurm, munged: FakeMunge) -> None:
        self.site, self.slurm, self.munge = site, slurm, munged
        self.port = server.server_port
        self.config = folder / "login.toml"
        self.config.write_text(
            f'cluster = "{CLUSTER}"\n[ledger]\npath = "{folder}/not/here.db"\n'
            f'[endpoint]\nurl = "http://127.0.0.1:{self.port}"\n'
        )

    def ask(self, uid: int, *arguments: str) -> Result:
        self.munge.uid = uid
        return run(arguments[0], "--config", str(self.config), *arguments[1:])

    def post(self, path: str, body: bytes = b"{}", **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def signed(self, report: str, body: bytes = b"{}") -> dict[str, Any]:
        return {"Authorization": f"Munge {self.munge.encode(wire.payload(report, body), None)}"}


@pytest.fixture
def munged(monkeypatch: pytest.MonkeyPatch) -> FakeMunge:
    fake = FakeMunge()
    monkeypatch.setattr(munge, "encode", fake.encode)
    monkeypatch.setattr(munge, "decode", fake.decode)
    return fake


@contextmanager
def serving(
    folder: Path,
    munged: FakeMunge,
    limits: EndpointLimits = LIMITS,
    *,
    most: int = 50_000,
    per_minute: int = 1000,
    confirm: Callable[[], None] = lambda: None,
    policy: Policy | None = None,
) -> Iterator[Served]:
    settings = {"listen": "127.0.0.1:0", "requests_per_minute": per_minute}
    config = Config.from_table({"endpoint": settings, "ledger": {"path": str(folder / "ledger.db")}})
    slurm = Slurm()
    with Site(folder, policy) as site:

        def change(request: ChangeRequest, author: Author) -> list[str]:
            return recorded(site.path, request, author, config.interval, confirm)

        lanes: list[ReportMaker] = [LocalReportMaker(most), LocalReportMaker(most)]
        handler = RequestHandler(lambda: config, Viewers(slurm), FairQueue(lanes), change, limits)
        server = EndpointServer("127.0.0.1:0", handler)
        thread = EndpointThread(server, poll=0.01)
        try:
            yield Served(site, folder, server, slurm, munged)
        finally:
            thread.close()


@pytest.fixture
def served(tmp_path: Path, munged: FakeMunge) -> Iterator[Served]:
    """Ada trains and has two jobs waiting; bob's waits before them."""
    with serving(tmp_path, munged) as one:
        cluster = one.site.cluster
        runs = cluster.submit()
        cluster.start(runs)
        cluster.submit(b"#!/bin/sh\n#PLUG --urgency=2\ntrain\n")
        cluster.submit(b"#!/bin/sh\n#PLUG --deadline=1h\ntrain\n", uid=BOB, user="bob", name="secret-of-bob")
        cluster.submit(b"#!/bin/sh\n#PLUG --urgency=1 --deadline=2h\ntrain\n", name="caf\u00e9\x1b")
        one.site.train(runs, {1: 0.5, 2: 0.6, 3: 0.7})
        one.site.cycle(2)
        yield one


class TestReports:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("acct", "-a", "--json", "-S", "uts1000000000"),
            ("acct", "-P", "-o", "all", "-j", "1,3"),
            ("acct", "-a", "-s", "PD", "-S", "uts1000000000", "-E", "now", "-u", "bob"),
            ("queue", "--json"),
            ("queue", "-u", "ada"),
            ("prio", "--long"),
            ("prio", "--json"),
            ("why", "1"),
            ("why", "1", "--plot"),
            ("why", "1", "--plot", "--json"),
            ("why", "3", "--json"),
        ],
    )
    def test_an_operator_gets_what_the_ledger_says(self, served: Served, arguments: tuple[str, ...]) -> None:
        far = served.ask(0, *arguments)
        assert far.exit_code == 0, far.output
        assert far.output == served.site.ask(*arguments)
        assert "1" in far.output

    def test_everybody_gets_the_status(self, served: Served) -> None:
        reply = json.loads(served.ask(ADA, "status", "--json").output)
        assert (reply["cycle"]["jobs"], reply["running"], reply["alive"]) == (4, False, False)

    def test_a_user_sees_no_job_of_another_where_slurm_hides_it(self, served: Served) -> None:
        for arguments in (
            ("acct", "-a", "--json", "-S", "uts1000000000"),
            ("acct", "--json", "-j", "1,2,3,4"),
            ("queue", "--json"),
            ("prio", "--json"),
        ):
            reply = served.ask(ADA, *arguments).output
            assert {job["user"] for job in json.loads(reply)["jobs"]} == {"ada"}
            assert "bob" not in reply

    def test_suggestions_are_about_jobs_that_slurm_shows(self, served: Served) -> None:
        cluster = served.site.cluster
        for uid, user in [(ADA, "ada"), (BOB, "bob")] * 3:
            job = cluster.submit(uid=uid, user=user, name=f"secret-of-{user}", gpus=4)
            cluster.start(job)
            for _ in range(10):
                cluster.say(job, load={"gpu": 0.1})
            served.site.cycle()
            cluster.end(job)
            served.site.cycle()
        arguments = "suggest", "-a", "-S", "uts1000000000"
        own, all_ = (json.loads(served.ask(uid, *arguments, "--json").output) for uid in (ADA, 0))
        assert [each["user"] for each in own["suggestions"]] == ["ada"]
        assert {each["user"] for each in all_["suggestions"]} == {"ada", "bob"}
        assert "bob" not in served.ask(ADA, *arguments).output
        assert served.ask(0, *arguments).output == served.site.ask(*arguments)

    def test_places_in_the_queue_count_the_jobs_that_are_hidden(self, served: Served) -> None:
        mine = json.loads(served.ask(ADA, "prio", "--json").output)["jobs"]
        assert sorted(job["position"] for job in mine) == [2, 3]

    def test_why_names_no_job_that_is_hidden(self, served: Served) -> None:
        reply = served.ask(ADA, "why", "2").output
        assert "Ahead of it: a job that Slurm does not show you." in reply
        assert "bob" not in reply
        assert "Ahead of it: job 3 of bob" in served.ask(0, "why", "2").output

    @pytest.mark.parametrize("rule", ["gives way", "optstop misses", "a rule of a policy from elsewhere"])
    def test_no_sentence_and_no_row_tells_of_a_job_that_is_hidden(
        self, tmp_path: Path, munged: FakeMunge, rule: str
    ) -> None:
        """Decisions and notes of which every fact is another job: hidden from ada if it is bob's."""

        def plan(seen: Snapshot) -> Plan:
            if len(seen.jobs) < 3:
                return Plan(np.zeros(len(seen.jobs)))
            reason = Reason(rule, dict.fromkeys(("by", "other", "target"), OtherJob(seen.jobs.keys[2], 987.654)))
            own = Reason(rule, {"other": OtherJob(seen.jobs.keys[1], 123.456)})
            first, second, _ = seen.jobs.keys
            actions = (Action("stop", first, reason), Action("preempt", first, reason), Action("stop", second, own))
            return Plan(np.zeros(3), actions=actions, notes={first: reason, second: reason})

        with serving(tmp_path, munged, policy=Planned(plan)) as one:
            cluster = one.site.cluster
            cluster.start(cluster.submit())
            cluster.submit()
            cluster.submit(uid=BOB, user="bob", name="secret-of-bob")
            one.site.cycle(2)
            everything = one.ask(0, "why", "1", "--json").output
            replies = [
                one.ask(ADA, *command).output
                for job in ("1", "2")
                for command in (("why", job), ("why", job, "--json"), ("acct", "-j", job, "--json"))
            ]
            replies.append(one.ask(ADA, "queue", "--json").output)
        assert "987.654" in everything
        assert "job 3" in everything
        for reply in replies:
            assert "987.7" not in reply
            assert "988" not in reply
            assert "987.654" not in reply
            assert "bob" not in reply
            assert "job 3" not in reply
        [shown] = json.loads(replies[1])["jobs"]
        told = [row for table in ("operations", "decisions") for row in shown[table] if "other" in row["facts"]]
        assert told
        assert all(row["facts"]["other"] is None for row in told)

    def test_an_estimate_is_of_the_senders_job_and_tells_of_no_other(self, served: Served) -> None:
        request = JobRequest("bob", "n[1-2]", "gpu", name="secret-of-bob", gpus=1, time_limit=60.0)
        parameters = {name: value for name, value in asdict(request).items() if name != "user"}
        body = json.dumps({**parameters, "script": ["#PLUG --target=accuracy>=0.1"]}).encode()
        served.munge.uid = BOB
        status, reply = served.post("/v1/estimate", body, **served.signed("estimate", body))
        assert status == 200
        assert reply.keys() == {
            "as_of",
            "method",
            "outcomes",
            "source",
            "run_time",
            "start",
            "end",
            "in_time",
            "deadline",
            "target",
            "changes",
        }
        status, reply = served.post(
            "/v1/estimate",
            b'{"nodes": "n1", "user": "ada"}',
            **served.signed("estimate", b'{"nodes": "n1", "user": "ada"}'),
        )
        assert (status, reply["error"]) == (400, "user: Extra inputs are not permitted")

    def test_why_of_a_hidden_job_is_as_of_one_that_never_was(self, served: Served) -> None:
        for more in ((), ("--plot",), ("--plot", "--json")):
            hidden, never = served.ask(ADA, "why", "3", *more), served.ask(ADA, "why", "99", *more)
            assert (hidden.exit_code, never.exit_code) == (1, 1)
            assert hidden.output.replace("3", "99") == never.output

    def test_a_user_who_is_known_only_by_hidden_jobs_is_not_known(self, served: Served) -> None:
        assert "Invalid user id: bob" in served.ask(ADA, "acct", "-u", "bob").output

    def test_everybody_sees_all_where_slurm_hides_nothing(self, tmp_path: Path, served: Served) -> None:
        served.slurm.private = "usage"
        reply = json.loads(served.ask(ADA, "queue", "--json").output)["jobs"]
        assert {job["user"] for job in reply} == {"ada", "bob"}

    def test_a_mistake_in_the_request_is_reported(self, served: Served) -> None:
        many = ",".join(map(str, range(1, 600)))
        result = served.ask(ADA, "acct", "-j", many)
        assert result.exit_code == 1
        assert "at most 500 items" in result.output

    def test_more_jobs_than_one_answer_holds_are_refused(self, tmp_path: Path, munged: FakeMunge) -> None:
        with serving(tmp_path, munged, most=2) as one:
            for _ in range(3):
                one.site.cluster.submit()
            one.site.cycle()
            result = one.ask(0, "acct", "-a", "-S", "uts1000000000")
        assert result.exit_code == 1
        assert "more than 2 jobs: choose a shorter time" in result.output

    @pytest.mark.parametrize("command", [("queue", "--json"), ("acct", "-a", "--json", "-S", "uts1000000000")])
    def test_what_is_long_comes_in_pages(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
    ) -> None:
        whole, made = served.ask(0, *command).output, served.munge.made
        monkeypatch.setattr(wire, "PAGE", 1)
        assert served.ask(0, *command).output == whole
        assert served.munge.made == made + 4

    def test_pages_after_the_first_are_paid_with_queue(self, tmp_path: Path, munged: FakeMunge) -> None:
        with serving(tmp_path, munged, per_minute=2) as one:
            one.site.cycle()
            bodies = [b'{"first": 1000}'] * 10 + [b"{}", b"{}"]
            found = [one.post("/v1/queue", body, **one.signed("queue", body))[0] for body in bodies]
        assert found == [200] * 11 + [429]

    def test_an_endpoint_that_is_not_there_is_named(self, tmp_path: Path, munged: FakeMunge) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            file = tmp_path / "login.toml"
            file.write_text(
                f'[ledger]\npath = "{tmp_path}/none/l.db"\n[endpoint]\nurl = "http://127.0.0.1:{unused.getsockname()[1]}"'
            )
            result = run("queue", "--config", str(file))
        assert result.exit_code == 1
        assert "Connection refused; is it running?" in result.output

    def test_a_ledger_that_is_there_is_read_itself(self, served: Served) -> None:
        settings = f'[ledger]\npath = "{served.site.path}"\n[endpoint]\nurl = "http://127.0.0.1:1"\n'
        served.config.write_text(settings)
        assert json.loads(served.ask(ADA, "queue", "--json").output)["jobs"]


class TestChanges:
    def changed(self, served: Served) -> list[tuple[int, str]]:
        sql = "SELECT job_id, directive_changes.user FROM directive_changes JOIN jobs ON jobs.id = job ORDER BY job_id"
        return [(row["job_id"], row["user"]) for row in served.site.ledger.query(sql)]

    def test_an_owner_changes_directives_and_is_told_when_they_count(self, served: Served) -> None:
        assert self.own_order(served) == ["4", "2"]
        result = served.ask(ADA, "set", "2", "--urgency=9.5", "--stop=optstop", "--deadline=")
        assert (result.exit_code, result.output) == (
            0,
            "job 2: --deadline as submitted, --stop=optstop, --urgency=9.5, "
            "from the next cycle on (at most 60 s from now)\n",
        )
        assert self.changed(served) == [(2, str(ADA))]
        assert "by 1001: --deadline as submitted, --stop=optstop, --urgency=9.5" in served.ask(ADA, "why", "2").output
        served.site.cycle()
        assert "--urgency=9.5 (2 before)" in served.ask(ADA, "why", "2").output
        assert self.own_order(served) == ["2", "4"]

    @staticmethod
    def own_order(served: Served) -> list[str]:
        return [job["jobid"] for job in json.loads(served.ask(ADA, "prio", "--json").output)["jobs"]]

    def test_a_hidden_job_is_as_one_that_never_was(self, served: Served) -> None:
        hidden, never = served.ask(ADA, "set", "3", "--urgency=1"), served.ask(ADA, "set", "99", "--urgency=1")
        assert (hidden.exit_code, never.exit_code) == (1, 1)
        assert hidden.output.replace("3", "99") == never.output
        for mistaken in ("--urgency=99", "--type=x", "--stop=target"):
            hidden, never = served.ask(ADA, "set", "3", mistaken), served.ask(ADA, "set", "99", mistaken)
            assert hidden.output.replace("job 3", "job 99") == never.output
        assert self.changed(served) == []

    def test_anothers_job_that_slurm_shows_is_refused_by_name(self, served: Served) -> None:
        served.slurm.private = "usage"
        result = served.ask(ADA, "set", "3", "--urgency=1")
        assert "Error: job 3 is bob's: only bob and operators may change its directives" in result.output
        assert self.changed(served) == []

    def test_operators_change_everybodys(self, served: Served) -> None:
        served.slurm.levels = {"nobody": "Operator"}
        assert served.ask(65534, "set", "3", "--urgency=1").exit_code == 0
        assert served.ask(0, "set", "2", "--urgency=1").exit_code == 0
        assert self.changed(served) == [(2, "root"), (3, "nobody")]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--urgency=99"], "--urgency=99: expected a number from 0 to 10, for example --urgency=7"),
            (["--stop=target"], "--stop: needs --target"),
            (["--type=x"], "--type=x: cannot change after the submission"),
            (["--deadline=2020-01-01T00:00"], "--deadline=2020-01-01T00:00: lies in the past"),
            ([], "name a directive to change, such as --deadline=2h"),
        ],
    )
    def test_a_mistake_is_named(self, served: Served, arguments: list[str], message: str) -> None:
        result = served.ask(ADA, "set", "2", *arguments)
        assert result.exit_code == 1
        assert f"Error: {message}" in result.output
        assert self.changed(served) == []

    def body(self, **given: Any) -> bytes:
        change = {"job": [2, None], "written": ["--urgency=1"], "id": "0" * 32, "cluster": CLUSTER, **given}
        return json.dumps({name: value for name, value in change.items() if value is not None}).encode()

    def post(self, served: Served, body: bytes, uid: int = ADA) -> tuple[int, Any]:
        served.munge.uid = uid
        return served.post("/v1/set", body, **served.signed("set", body))

    @pytest.mark.parametrize(
        "given",
        [
            {"id": "x"}, {"id": None}, {"cluster": None}, {"cluster": ""}, {"job": "2"}, {"job": [-1, None]},
            {"job": [1 << 60, None]}, {"written": "--urgency=1"}, {"written": ["--urgency=1"] * 50},
            {"written": ["--urgency=" + "1" * 5_000]}, {"uid": 0}, {"user": "root"}, {"written": ["\x00"]},
            {"written": ["--urgency=1 --manage=off"]}, {"written": ["--urgency=\ud800"]}, {"written": [None]},
        ],
    )  # fmt: skip
    def test_a_request_that_makes_no_sense_changes_nothing(self, served: Served, given: dict[str, Any]) -> None:
        assert self.post(served, self.body(**given))[0] == 400
        assert self.changed(served) == []

    @pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 60_000])
    def test_what_is_no_request_changes_nothing(self, served: Served, body: bytes) -> None:
        assert self.post(served, body)[0] == 400
        assert self.changed(served) == []

    def test_a_credential_is_good_for_one_change_once(self, served: Served) -> None:
        served.munge.uid = ADA
        body = self.body()
        headers = served.signed("set", body)
        assert served.post("/v1/set", self.body(job=[4, None]), **headers)[0] == 401
        headers = served.signed("set", body)
        assert served.post("/v1/set", body, **headers)[0] == 200
        assert served.post("/v1/set", body, **headers)[0] == 401
        assert served.post("/v1/set", body, **served.signed("status", body))[0] == 401
        assert self.changed(served) == [(2, str(ADA))]

    def test_a_request_that_another_munged_would_take_again_is_refused(self, served: Served) -> None:
        assert self.post(served, self.body())[0] == 200
        assert self.post(served, self.body(written=["--urgency=3"]))[0] == 400
        served.site.cycle()
        status, reply = self.post(served, self.body())
        assert (status, reply) == (400, {"error": "this request was received before, and the change was made"})

    def test_a_request_for_another_cluster_is_refused(self, served: Served) -> None:
        status, reply = self.post(served, self.body(cluster="elsewhere"))
        assert (status, reply) == (400, {"error": f"this daemon serves the cluster {CLUSTER}, not elsewhere"})

    def test_changes_count_for_the_rate(self, tmp_path: Path, munged: FakeMunge) -> None:
        with serving(tmp_path, munged, per_minute=2) as one:
            one.site.cycle()
            assert [self.post(one, self.body(job=[9, None]))[0] for _ in range(3)] == [400, 400, 429]

    @pytest.mark.parametrize("error", [SteppedDown("the daemon on b is active now"), NotConfirmed("no folder")])
    def test_a_daemon_that_may_not_act_takes_none(self, tmp_path: Path, munged: FakeMunge, error: Exception) -> None:
        def confirm() -> None:
            raise error

        with serving(tmp_path, munged, confirm=confirm) as one:
            for _ in range(2):
                one.site.cluster.submit()
            one.site.cycle()
            result = one.ask(ADA, "set", "2", "--urgency=1")
            assert result.exit_code == 1
            assert f"refuses the request: this daemon changes nothing at the moment: {error}" in result.output
            assert self.changed(one) == []
            assert one.ask(ADA, "queue").exit_code == 0

    def test_a_ledger_that_cannot_be_written_is_said_and_nothing_is_half_done(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise LedgerError("no space left")

        monkeypatch.setattr(Ledger, "change_directives", full)
        result = served.ask(ADA, "set", "2", "--urgency=1")
        assert "the daemon's ledger cannot be used at the moment" in result.output
        assert "no space" not in result.output


class TestUnknownClients:
    def test_nothing_is_reported_without_a_credential(self, served: Served) -> None:
        assert served.post("/v1/queue")[0] == 401
        assert served.post("/v1/queue", Authorization="Basic cm9vdDo=")[0] == 401
        assert served.post("/v1/queue", Authorization="Munge MUNGE:forged:")[0] == 401

    def test_a_credential_is_good_once(self, served: Served) -> None:
        headers = served.signed("status")
        assert served.post("/v1/status", **headers)[0] == 200
        status, reply = served.post("/v1/status", **headers)
        assert (status, reply) == (401, {"error": "Replayed credential"})

    def test_a_credential_is_good_for_its_own_request_only(self, served: Served) -> None:
        assert served.post("/v1/queue", **served.signed("status"))[0] == 401
        assert served.post("/v1/queue", b'{"live": true}', **served.signed("queue"))[0] == 401

    @pytest.mark.parametrize("path", ["/", "/v1/", "/v1/reset", "/v1/queue/../status", "/v2/queue"])
    def test_there_is_nothing_but_the_reports(self, served: Served, path: str) -> None:
        assert served.post(path, **served.signed("queue"))[0] == 404

    def test_only_posts_are_answered(self, served: Served) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.request("GET", "/v1/status")
        assert connection.getresponse().status == 501
        connection.close()

    def test_a_long_body_is_refused_before_it_is_read(self, served: Served) -> None:
        assert served.post("/v1/queue", b" " * (wire.REQUEST_BYTES + 1))[0] == 413

    @pytest.mark.parametrize("length", ["", "-1", "1e3", "\u0661", "9" * 40])
    def test_a_length_that_is_none_is_refused(self, served: Served, length: str) -> None:
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as raw:
            raw.sendall(f"POST /v1/queue HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode())
            assert raw.recv(100).split()[1] == b"411"

    @pytest.mark.parametrize(
        "body",
        [b"", b"[]", b"{", b'{"sql": 1}', b'{"jobs": [[1]]}', b'{"jobs": "1"}', b'{"owner": 0}', b'{"most": 0}',
         b"\xff", b'{"start": NaN}', b"[" * 60_000, b'{"users": ["a\\u0000b"]}'],
    )  # fmt: skip
    def test_a_request_that_makes_no_sense_does_no_harm(self, served: Served, body: bytes) -> None:
        status, _ = served.post("/v1/queue", body, **served.signed("queue", body))
        assert status == (200 if body == b"" else 400)
        assert served.post("/v1/status", **served.signed("status"))[0] == 200

    def test_a_name_that_no_user_can_have_is_no_request(self, served: Served) -> None:
        body = b'{"user": "a\\u0000b"}'
        assert served.post("/v1/user", body, **served.signed("user", body))[0] == 400

    def test_each_user_has_a_rate_of_their_own(self, tmp_path: Path, munged: FakeMunge) -> None:
        with serving(tmp_path, munged, per_minute=2) as one:
            one.site.cycle()
            munged.uid = ADA
            reply = [one.post("/v1/status", **one.signed("status"))[0] for _ in range(3)]
            munged.uid = BOB
            reply.append(one.post("/v1/status", **one.signed("status"))[0])
        assert reply == [200, 200, 429, 200]

    def test_of_one_address_at_most_two_credentials_are_checked_at_once(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock, go = threading.Lock(), threading.Event()
        at_once: list[int] = [0, 0]
        full = threading.Semaphore(0)

        def slow(credential: str, socket: Path | None) -> Sender:
            with lock:
                at_once[0] += 1
                at_once[1] = max(at_once)
            full.release()
            go.wait(60)
            with lock:
                at_once[0] -= 1
            raise EndpointError("forged")

        monkeypatch.setattr(munge, "decode", slow)
        threads = [
            threading.Thread(target=served.post, args=("/v1/status",), kwargs={"Authorization": "Munge MUNGE:x:"})
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for _ in range(2):
            assert full.acquire(timeout=60)
        assert not full.acquire(timeout=0.3)
        go.set()
        for thread in threads:
            thread.join(60)
        assert at_once == [0, 2]

    def test_who_does_not_send_its_request_in_time_is_hung_up_on(self, tmp_path: Path, munged: FakeMunge) -> None:
        limits = EndpointLimits(ConnectionLimits(request_seconds=0.5))
        with serving(tmp_path, munged, limits) as one:
            one.site.cycle()
            with socket.create_connection(("127.0.0.1", one.port), timeout=60) as slow:
                sent = 0
                with contextlib.suppress(OSError):
                    while sent < 6000 and not select.select([slow], [], [], 0.01)[0]:  # a byte now and then
                        slow.sendall(b"P")
                        sent += 1
                assert sent < 6000
            assert one.post("/v1/status", **one.signed("status"))[0] == 200

    def test_of_too_many_unknown_ones_the_oldest_gives_way(self, tmp_path: Path, munged: FakeMunge) -> None:
        limits = EndpointLimits(ConnectionLimits(per_address=3, request_seconds=3600.0))
        with serving(tmp_path, munged, limits) as one, contextlib.ExitStack() as stack:
            one.site.cycle()
            slow = [
                stack.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=60)) for _ in range(16)
            ]
            for each in slow:
                with contextlib.suppress(OSError):
                    each.sendall(b"POST /v1/status HTTP/1.0\r\n")
            assert one.post("/v1/status", **one.signed("status"))[0] == 200
            for each in slow[:13]:
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(1) == b""

    def test_connections_for_which_no_thread_could_be_started_are_counted_no_more(
        self, tmp_path: Path, munged: FakeMunge, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where the machine has no processes left for a while."""
        start, failed = threading.Thread.start, list[threading.Thread]()

        def none_left(thread: threading.Thread) -> None:
            if "process_request_thread" not in thread.name:
                start(thread)
                return
            failed.append(thread)
            raise RuntimeError("can't start new thread")

        limits = EndpointLimits(ConnectionLimits(in_all=3))
        with serving(tmp_path, munged, limits) as one:
            one.site.cycle()
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", none_left)
                for _ in range(4):
                    with socket.create_connection(("127.0.0.1", one.port), timeout=60) as refused:
                        assert refused.recv(1) == b""
            assert len(failed) == 4
            assert one.post("/v1/status", **one.signed("status"))[0] == 200

    def test_one_user_has_so_many_connections_and_others_have_theirs(self) -> None:
        connections = Connections(ConnectionLimits(per_user=2, per_address=2))
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
            for each in sockets[:3]:
                assert connections.admit(each, "login1", 0.0)
                connections.was_read(each)
                allowed = connections.is_of(each, ADA)
            assert not allowed
            connections.ended(sockets[2])
            assert connections.admit(sockets[3], "login1", 0.0)
            assert connections.is_of(sockets[3], BOB)

    def test_requests_that_have_come_give_way_only_to_clients_from_where_fewer_came(self) -> None:
        connections = Connections(ConnectionLimits(unknown=4, per_address=3))
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(8)]

            def admitted(number: int, address: str) -> bool:
                admitted = connections.admit(sockets[number], address, 0.0)
                connections.was_read(sockets[number])
                return admitted

            assert [admitted(number, "login1") for number in range(3)] == [True] * 3
            assert not admitted(3, "login1")
            assert admitted(4, "login2")
            assert admitted(5, "login3")  # the latest of login1 gives way
            assert [connections.is_open(each) for each in sockets[:3]] == [True, True, False]
            assert not admitted(6, "login1")

    def test_no_flood_makes_more_threads_than_there_may_be(self) -> None:
        connections = Connections(ConnectionLimits(per_address=2, in_all=3))
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(5)]
            assert [connections.admit(each, "login1", 0.0) for each in sockets] == [True] * 3 + [False] * 2
            connections.ended(sockets[0])
            assert connections.admit(sockets[3], "login1", 0.0)


def wait_for(true: Callable[[], bool]) -> bool:
    """Whether it comes true; a connection that is refused meanwhile is not it."""
    for _ in range(600):
        try:
            if true():
                return True
        except (OSError, http.client.HTTPException):
            threading.Event().wait(0.1)
    return False


class TestViewers:
    def test_operators_and_root_see_all(self) -> None:
        slurm = Slurm()
        slurm.levels = {"nobody": "Operator"}
        viewers = Viewers(slurm)
        assert viewers.viewer(0).sees_all
        assert viewers.viewer(65534).sees_all
        assert not viewers.viewer(ADA).sees_all

    def test_who_operates_is_what_slurm_says_and_nobody_does_where_it_does_not_answer(self) -> None:
        slurm = Slurm("none")
        slurm.levels = {"nobody": "Operator"}
        viewers = Viewers(slurm)
        assert [viewers.operates(uid, 1000.0) for uid in (0, 65534, ADA)] == [True, True, False]
        slurm.reachable = False
        later = 1000.0 + EXPIRE_SECONDS + REFRESH_SECONDS + 1
        assert [viewers.operates(uid, later) for uid in (0, 65534, ADA)] == [True, False, False]

    def test_slurm_is_queried_seldom(self) -> None:
        slurm = Slurm()
        viewers = Viewers(slurm)
        for at in range(int(REFRESH_SECONDS)):
            viewers.viewer(ADA, 1000.0 + at)
        assert slurm.asked == 1
        viewers.viewer(ADA, 1000.0 + REFRESH_SECONDS + 1)
        assert slurm.asked == 2

    def test_where_slurm_does_not_answer_everybody_sees_their_own(self) -> None:
        slurm = Slurm("none")
        viewers = Viewers(slurm)
        assert viewers.viewer(ADA, 1000.0).sees_all
        slurm.reachable = False
        assert viewers.viewer(ADA, 1000.0 + EXPIRE_SECONDS).sees_all
        assert not viewers.viewer(ADA, 1000.0 + EXPIRE_SECONDS + REFRESH_SECONDS + 1).sees_all
        slurm.reachable = True
        assert viewers.viewer(ADA, 1000.0 + EXPIRE_SECONDS + 3 * REFRESH_SECONDS).sees_all


class TestRate:
    def test_a_bucket_fills_again_over_per_minute(self) -> None:
        rate = RateLimit(60)
        assert [rate.allows(ADA, 0.0) for _ in range(61)] == [True] * 60 + [False]
        assert rate.allows(ADA, 1.0)
        assert not rate.allows(ADA, 1.5)
        assert sum(rate.allows(ADA, 1e6) for _ in range(100)) == 60

    def test_it_remembers_no_more_users_than_there_may_be(self) -> None:
        rate = RateLimit(1)
        for uid in range(20_000):
            rate.allows(uid, 0.0)
        assert len(rate._buckets) == 10_000


class TestMunge:
    def test_what_is_no_credential_is_not_given_to_munged(self) -> None:
        for text in ("", "MUNGE:", "MUNGE:a b:", "MUNGE:" + "A" * 20_000 + ":", "x\ny"):
            with pytest.raises(EndpointError, match="not a MUNGE credential"):
                munge.decode(text, None)

    def test_a_munged_that_is_not_running_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(EndpointError, match="systemctl status munge"):
            munge.encode(b"x", tmp_path / "no-socket")
        with pytest.raises(EndpointError, match="munged rejects the credential"):
            munge.decode("MUNGE:" + "A" * 64 + ":", tmp_path / "no-socket")
