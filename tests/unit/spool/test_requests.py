"""Requests to jobs in the spool."""

from pathlib import Path

from slurmplug.spool.report_lines import RunId
from slurmplug.spool.requests import Requests

RUN = RunId(5, 0)


def test_a_request_is_made_and_withdrawn_and_both_may_be_repeated(spool: Path) -> None:
    requests = Requests(spool)
    for _ in range(2):
        requests.issue(RUN, "stop")
        assert requests.open_runs("stop") == [RUN]
        assert requests.open_runs("checkpoint") == []
    for _ in range(2):
        requests.withdraw(RUN, "stop")
        assert requests.open_runs("stop") == []


def test_the_runs_with_an_open_request_are_listed_by_its_kind(spool: Path) -> None:
    requests = Requests(spool)
    requests.issue(RUN, "stop")
    requests.issue(RunId(6, 2), "checkpoint")
    (spool / "requests" / "notes.stop").write_bytes(b"")
    assert requests.open_runs("stop") == [RUN]
    assert requests.open_runs("checkpoint") == [RunId(6, 2)]
