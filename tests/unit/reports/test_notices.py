"""What is said to running jobs on their standard error."""

from pathlib import Path
from typing import Any

import pytest

from slurmplug.reports import notices
from slurmplug.spool.values import RunId
from tests.ledgers import Site

SCRIPT = b"#!/bin/sh\n#PLUG --target=accuracy>=0.92 --stop=target\ntrain\n"


def said(folder: Path, **settings: Any) -> dict[RunId, str]:
    """What is said to a job of `ada` that reports in percent."""
    with Site(folder, **settings) as site:
        job = site.cluster.submit(SCRIPT)
        site.cluster.start(job)
        site.train(job, {1: 85.0, 2: 86.0})
        return dict(notices.of_running_jobs(site.cycle()))


def test_a_job_whose_target_is_in_doubt_is_told(tmp_path: Path) -> None:
    ((run, text),) = said(tmp_path).items()
    assert run == RunId(1, 0)
    assert text.startswith("It is not stopped by any rule: its target is 0.92, it reports 86, ")
    assert text.endswith(".")


@pytest.mark.parametrize("excluded", [{"exclude_users": ["ada"]}, {"exclude_partitions": ["gpu"]}])
def test_a_job_that_the_site_excludes_is_told_nothing(tmp_path: Path, excluded: dict[str, list[str]]) -> None:
    assert said(tmp_path, guardrails=excluded) == {}
