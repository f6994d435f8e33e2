"""acct: what sacct adds to the jobs of the ledger."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.cluster import user_answers
from slurmplug.reports import sacct_fields
from slurmplug.reports.sacct_fields import Run
from tests.ledgers import Site

SACCT = """#!/usr/bin/env python3
import json, sys
options = dict(each.split("=", 1) for each in sys.argv[1:] if each.startswith("--delimiter="))
wanted = sys.argv[sys.argv.index("--jobs") + 1].split(",")
names = sys.argv[sys.argv.index("--format") + 1].split(",")
for row in json.load(open("{rows}")):
    job, _, step = row["JobIDRaw"].partition(".")
    if job in wanted and (not step or "--allocations" not in sys.argv):
        if row.get("earlier") and "--duplicates" not in sys.argv:
            continue
        print(options["--delimiter"].join(row.get(name, "") for name in names))
"""


def row(job: str, state: str, **others: str) -> dict[str, str]:
    return {"JobIDRaw": job, "JobID": job, "State": state, "JobName": "a\x1b", "ElapsedRaw": "100", **others}


ROWS = [
    row("1", "REQUEUED", Submit="100", earlier="yes", NodeList="n7"),
    row("1", "COMPLETED", Submit="200", AllocCPUS="4", AllocTRES="cpu=4,mem=8G,gres/gpu=2"),
    row("1.batch", "COMPLETED", TotalCPU="01:40.000", MaxRSS="1G", NTasks="1", Submit="200"),
    row("1.0", "COMPLETED", TotalCPU="00:20", MaxRSS="1536M", NTasks="2", Submit="200"),
    row("2", "CANCELLED by 1001", Submit="100"),
]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "sacct").write_text(SACCT.replace("{rows}", str(tmp_path / "rows.json")))
    (tmp_path / "sacct").chmod(0o755)
    (tmp_path / "slurmplug.toml").write_text(f'[slurm]\nbin = "{tmp_path}"\n')
    with Site(tmp_path) as site:
        for _ in range(3):
            site.cluster.start(site.cluster.submit())
        site.cycle()
        site.cluster.end(1)
        site.cluster.end(2, "CANCELLED")
        site.cycle()
        yield site


def asked(site: Site, *options: str) -> list[dict[str, str]]:
    config = str(site.path.parent / "slurmplug.toml")
    return site.table("--config", config, "-j", "1,2,3", *options)


def test_who_cancelled_a_job_is_told(site: Site) -> None:
    assert [job["State"] for job in asked(site, "-o", "state")] == ["COMPLETED", "CANCELLED by 1001", "RUNNING"]


def test_fields_of_sacct_are_those_of_the_last_run(site: Site) -> None:
    first, second, _ = asked(site, "-o", "jobid,alloctres,totalcpu,maxrss,cpueff,memeff", "--units", "G")
    assert list(first.values()) == ["1", "cpu=4,mem=8G,gres/gpu=2", "00:02:00", "1.50G", "30.0%", "37.5%"]
    assert (second["MaxRSS"], second["CPUEff"]) == ("", "")


def test_earlier_runs_come_before_the_last_and_steps_after_it(site: Site) -> None:
    rows = asked(site, "-D", "--steps", "-o", "jobid,state,nodelist,gpus,quantity")
    assert [(each["JobID"], each["State"]) for each in rows] == [
        ("1", "REQUEUED"), ("1", "COMPLETED"), ("1.batch", "COMPLETED"), ("1.0", "COMPLETED"),
        ("2", "CANCELLED by 1001"), ("3", "RUNNING"),
    ]  # fmt: skip
    assert (rows[0]["NodeList"], rows[0]["Quantity"], rows[1]["GPUs"]) == ("n7", "", "1")
    assert len(asked(site, "-D", "--steps", "-X", "-o", "jobid")) == 4


def test_a_name_of_a_step_reaches_no_terminal_raw(site: Site) -> None:
    assert all(each["JobName"].isprintable() for each in asked(site, "--steps", "-o", "jobname"))


def test_without_accounting_what_only_it_knows_is_an_error_and_the_rest_is_shown(site: Site) -> None:
    (site.path.parent / "sacct").write_text("#!/bin/sh\necho no slurmdbd >&2; exit 1\n")
    assert [job["State"] for job in asked(site, "-o", "state")] == ["COMPLETED", "CANCELLED", "RUNNING"]
    config = str(site.path.parent / "slurmplug.toml")
    assert "no slurmdbd" in site.ask("acct", "--config", config, "-j", "1", "-o", "maxrss", code=1)


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        (("-r", "gpu"), "123"), (("-r", "other"), ""), (("-q", "normal"), "123"), (("--name", "none"), ""),
        (("-N", "n[1-3]"), "123"), (("-N", "n2"), ""), (("-k", "1:00:00"), "123"), (("-k", "30", "-K", "90"), "123"),
        (("-k", "59"), ""), (("-K", "1"), "123"),
    ],
)  # fmt: skip
def test_jobs_are_selected_as_sacct_selects_them(site: Site, options: tuple[str, ...], jobs: str) -> None:
    assert "".join(each["JobID"] for each in asked(site, *options, "-o", "jobid")) == jobs


def jobstats(summary: object) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(summary).encode())).decode()


def test_the_use_of_gpus_is_jobstats_or_slurms_own() -> None:
    def used(comment: str = "", usage: str = "") -> float | None:
        fields = dict.fromkeys(user_answers.FIELDS, "") | {"AllocTRES": "gres/gpu=2", "ElapsedRaw": "100"}
        step = user_answers.Record(1, "0", fields | {"TRESUsageInAve": usage, "NTasks": "2"})
        return sacct_fields.gpu_efficiency(Run(user_answers.Record(1, "", fields | {"AdminComment": comment}), [step]))

    assert used(usage="cpu=00:01:00,gres/gpuutil=45") == pytest.approx(0.45)
    assert used(usage="cpu=00:01:00") is None
    assert used(comment="JS1:nonsense") is None
    assert used(comment=jobstats({"nodes": {"n1": {"gpu_utilization": {"0": 95, "1": 55}}}})) == pytest.approx(0.75)
