"""slurmplug replay: the past of a site under Slurm alone, beside what happened, and under a policy."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slurmplug.commands import main
from slurmplug.errors import ReadFailed
from tests.ledgers import Site

HEADING = "JobID|User|Account|Submit|Eligible|Start|ElapsedRaw|Timelimit|AllocTRES|NCPUS|State|JobName"
HOSTILE = "<script>alert(1)</script>$\\frac{"


def row(job: str, submit: str, start: str, *, seconds: int = 600, user: str = "ada", account: str = "lab") -> str:
    day = "2026-03-01T"
    begun = start if start in ("None", "Unknown") else f"{day}{start}"
    cells = (job, user, account, f"{day}{submit}", f"{day}{submit}", begun, str(seconds), "01:00:00", "gres/gpu=8", "8")
    return "|".join((*cells, "COMPLETED", "train"))


def write(folder: Path, *rows: str) -> Path:
    path = folder / "sacct.txt"
    path.write_text("\n".join([HEADING, *rows]) + "\n")
    return path


@pytest.fixture
def true(tmp_path: Path) -> Path:
    """Twelve jobs that need all GPUs, of ten minutes each, one each five minutes, and waits as Slurm gives them."""
    starts = [600 * n for n in range(12)]
    rows = [
        row(f"{n + 1}", clock(300 * n), clock(max(at, 300 * n)), user=f"user{n % 3}", account=f"lab{n % 2}")
        for n, at in enumerate(starts)
    ]
    return write(tmp_path, *rows)


def clock(seconds: int) -> str:
    return f"{10 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def replay(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["replay", *arguments, "--config", "/dev/null"])
    assert result.exit_code == code, result.output
    return result.output


def found(*arguments: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(replay(*arguments, "--json"))
    return made


ASSUMED = ("--assume-directives", "0.7", "--samples", "2", "--cluster", "1x8")


def test_the_table_begins_with_how_near_the_replay_comes_to_what_happened(true: Path) -> None:
    output = replay("--sacct", str(true), "--cluster", "1x8")
    lines = output.splitlines()
    assert lines[0] == "What happened, and its replay under Slurm alone: 12 jobs whose waits are known"
    shown = dict(re.split(r" {2,}| (?=\S+$)", line, maxsplit=1) for line in lines[2:8])
    assert shown["mean wait, true"] == "00:27:30"
    assert abs(float(shown["apart"].strip("%+"))) < 5
    assert float(shown["rank correlation of the starts"]) == 1
    assert "not within 10%" not in output


def test_a_wait_that_is_further_apart_is_said_with_what_it_may_come_from(tmp_path: Path) -> None:
    path = write(tmp_path, row("1", "10:00:00", "10:00:00"), row("2", "10:00:00", "15:00:00"))
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=n1 Gres=gpu:8 CPUs=64\nLicenses=matlab:3\n")
    made = found("--sacct", str(path), "--slurm-conf", str(conf))
    assert made["waits"]["apart"] < -0.9
    assert made["cluster"] == "1x8x64x99999999"
    assert "not within 10% of the true one" in made["warnings"][0]
    assert "model: Licenses, limits of QOS and associations, reservations" in made["warnings"][0]


def test_waiting_that_no_shortage_explains_is_said_with_whose_it_was(tmp_path: Path) -> None:
    # A job of eve holds all eight GPUs for a minute; three of ada, of two GPUs each, wait for ten hours nevertheless.
    rows = [row(f"{n}", "10:00:00", "20:00:00").replace("gres/gpu=8", "gres/gpu=2") for n in range(3)]
    rows.append(row("4", "10:00:00", "10:00:00", user="eve", seconds=60))
    path = write(tmp_path, *rows)
    made = found("--sacct", str(path), "--cluster", "1x8")
    assert made["waits"]["true_idle"] == pytest.approx(made["waits"]["true_mean"] - 45)
    assert made["waits"]["replayed_idle"] == 0
    assert made["waits"]["waiters"] == [{"what": "user", "name": "ada", "share": 1.0}]
    said = " ".join(made["warnings"])
    assert "During 100% of the true waiting, at least as many GPUs as the job requested were idle" in said
    assert "100% of the difference" in said
    assert "beside idle GPUs were those of user ada (100%)." in said
    assert "100% of that waiting ended within one hour of the day" in said
    assert "beside idle GPUs were those of user ada (100%)." in replay("--sacct", str(path), "--cluster", "1x8")


def test_a_cluster_that_is_not_the_one_of_the_jobs_is_said(tmp_path: Path) -> None:
    rows = [row(f"{n}", "10:00:00", clock(600 * n)) for n in range(4)]
    too_large = found("--sacct", str(write(tmp_path, *rows)), "--cluster", "2x8")
    assert any("The jobs held at most 8 of the 16 GPUs of the replay" in each for each in too_large["warnings"])
    rows = [row(f"{n}", "10:00:00", "10:00:00") for n in range(4)]
    too_small = found("--sacct", str(write(tmp_path, *rows)), "--cluster", "1x8")
    assert too_small["waits"]["apart"] is None
    assert any("The jobs held 32 GPUs, more than the 8 of the replay" in each for each in too_small["warnings"])


def test_jobs_that_did_not_start_have_no_wait_and_without_waits_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, row("1", "10:00:00", "None"), row("2", "10:00:00", "Unknown"))
    made = found("--sacct", str(path), "--cluster", "1x8")
    assert made["waits"] is None
    assert "does not say how long jobs waited" in made["warnings"][0]


def test_nothing_changes_where_no_job_is_managed_and_that_is_said(true: Path) -> None:
    output = replay("--sacct", str(true), "--cluster", "1x8")
    assert "0 of 12 jobs are managed" in output
    assert "No policy changes anything, because no job is managed: see --assume-directives SHARE." in output
    assert "One sample gives no interval." in output
    assert re.search(r"jobs_gained +- +0 ", output)


def test_who_gains_and_who_loses_has_an_interval_over_the_samples(true: Path) -> None:
    made = found("--sacct", str(true), *ASSUMED)
    figures = {each["figure"]: each for each in made["figures"]}
    assert made["samples"] == 2
    assert figures["jct_mean"]["policy"] < figures["jct_mean"]["alone"]
    for each in figures.values():
        if each["low"] is not None:
            assert each["low"] <= each["difference"] <= each["high"]
    assert figures["jobs_gained"]["policy"] > 0
    assert figures["jobs_gained"]["alone"] is None
    assert sum(each["jobs"] for each in made["users"]) == 12
    assert {each["name"] for each in made["accounts"]} == {"lab0", "lab1"}
    assert "9 jobs have directives, drawn as those of MLFS" in " ".join(made["statements"])


def test_the_same_samples_give_the_same_bytes(true: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pages = [tmp_path / "one.html", tmp_path / "other.html"]
    outputs = [replay("--sacct", str(true), *ASSUMED, "--html", str(page)) for page in pages]
    assert outputs[0] == outputs[1]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_samples_that_are_made_side_by_side_give_the_same_bytes(true: Path) -> None:
    asked = ("--sacct", str(true), *ASSUMED, "--json")
    assert replay(*asked, "--processes", "2") == replay(*asked)


def test_an_array_needs_submitit_and_sbatch_and_has_no_processes_here(
    true: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--sacct", str(true), *ASSUMED, "--on", "slurm")
    assert "--processes runs simulations on this machine" in replay(*asked, "--processes", "2", code=1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch is not found" in replay(*asked, code=1)
    monkeypatch.delattr("slurmplug.sim.experiment.slurm_array")
    monkeypatch.delitem(sys.modules, "slurmplug.sim.experiment.slurm_array")
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "pip install 'slurmplug[slurm-array]'" in replay(*asked, code=1)


def test_the_page_loads_nothing_and_names_in_it_are_only_names(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row(f"{n}", clock(60 * n), clock(60 * n), user=HOSTILE, account="日本&") for n in range(3)]
    page = tmp_path / "page.html"
    replay("--sacct", str(write(tmp_path, *rows)), "--cluster", "1x8", "--html", str(page))
    text = page.read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "日本&amp;" in text
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\((?!#)|(?:src|href)=\"(?!#)", text)
    assert not re.search(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink)\")", text)
    assert "default-src 'none'" in text
    assert "Settings of the site that are not followed" in text
    assert "Not known: directives, learning curves" in text


def test_each_plot_of_the_page_has_an_interval_over_the_samples(true: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, asked = tmp_path / "page.html", ("--sacct", str(true), "--cluster", "1x8", "--html")
    replay(*asked, str(page), "--assume-directives", "0.7", "--samples", "3")
    text = page.read_text()
    for title in ("Time from submission to end", "GPU hours and deadlines", "by user", "by account"):
        assert re.search(f"<h2>[^<]*{title}[^<]*</h2>", text)
    assert "share of the deadlines that are met, with its 95% interval" in text
    bands, bars = r'id="(?:FillBetween)?PolyCollection_', 'id="LineCollection_'
    assert len(re.findall(bands, text)) == 2, "of the time to the end, and of who gains and loses"
    assert len(re.findall(bars, text)) == 6, "of GPU hours and deadlines, and two each by user and by account"
    replay(*asked, str(page))
    alone = page.read_text()
    assert "share of the deadlines that are met: no job has one" in alone
    assert not re.findall(bands, alone)


def test_each_run_of_a_requeued_job_and_each_element_of_an_array_is_a_job(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        row("7", "10:00:00", "10:00:00", seconds=60),
        row("7", "10:01:00", "10:03:00"),
        row("8_1", "10:00:00", "10:20:00"),
        row("8_2", "10:00:00", "10:30:00"),
        row("8_[3-9]", "10:00:00", "Unknown", seconds=0),
    )
    made = found("--sacct", str(path), "--cluster", "1x8")
    assert made["waits"]["jobs"] == 4
    assert made["statements"][0].startswith("0 of 4 jobs")


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_what_sacct_of_each_release_lists_of_jobs_that_ended_is_read(release: str, tmp_path: Path) -> None:
    recorded = Path(__file__).parents[2] / "data" / f"slurm-{release}" / "sacct.txt"
    rows = []
    for line in recorded.read_text().splitlines():
        job, state, start, end, *_ = line.split("|")
        seconds = "0" if "CANCELLED" in state else "30"
        rows.append(f"{job}|{state}|{end}|{start}|{seconds}|gres/gpu=8")
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(["JobID|State|Submit|Start|ElapsedRaw|AllocTRES", *rows]) + "\n")
    assert "0 of 3 jobs are managed" in replay("--sacct", str(path), "--cluster", "1x8")


def test_the_past_may_come_from_sacct_itself(true: Path, tmp_path: Path) -> None:
    program = tmp_path / "sacct"
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/called\n"
        'for each in "$@"; do case $each in --delimiter=*) mark=${each#*=};; esac; done\n'
        f'sed "s/|/$mark/g; s/train/a|b/" {true}\n'
    )
    program.chmod(0o755)
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[slurm]\nbin = "{tmp_path}"\n')
    result = CliRunner().invoke(main, ["replay", "--since", "now-30days", "--cluster", "1x8", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert "0 of 12 jobs are managed" in result.output
    called = (tmp_path / "called").read_text().splitlines()
    assert {"--allusers", "--allocations", "--duplicates", "--starttime=now-30days"} <= set(called)


def test_a_name_with_a_line_break_is_no_job_of_the_past(tmp_path: Path) -> None:
    """sacct prints a job's name as it is; that of the second job looks like a third one."""
    program = tmp_path / "sacct"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "mark = next(each.split('=')[1] for each in sys.argv if each.startswith('--delimiter='))\n"
        "columns = next(each.split('=')[1] for each in sys.argv if each.startswith('--format=')).split(',')\n"
        "one = {'JobID': '1', 'User': 'ada', 'Submit': '1000', 'ElapsedRaw': '60', 'AllocTRES': 'gres/gpu=8'}\n"
        "print(mark.join(columns))\n"
        "for name in ('train', 'x\\r\\n' + '|'.join(one.get(each, 'y') for each in columns), '\\x1b'):\n"
        "    print(mark.join({**one, 'JobName': name}.get(each, '') for each in columns))\n"
    )
    program.chmod(0o755)
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[slurm]\nbin = "{tmp_path}"\n')
    result = CliRunner().invoke(main, ["replay", "--since", "now-30days", "--cluster", "1x8", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert "0 of 3 jobs are managed" in result.output


def test_a_sacct_that_cannot_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ReadFailed("sacct exits 1: down")

    monkeypatch.setattr("slurmplug.cluster.job_history.JobHistoryClient.runs", fails)
    assert "sacct exits 1: down" in replay("--since", "today", "--cluster", "1x8", code=1)


def test_the_past_of_the_ledger_has_all_jobs_that_ran_and_manages_those_with_directives(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        for state, script, later in (
            ("COMPLETED", b"#PLUG --urgency=9\n", 0.0),
            ("FAILED", b"train\n", 0.0),
            ("TIMEOUT", b"#PLUG --urgency=9 --manage=off\n", 0.0),
            ("CANCELLED", b"#PLUG --urgency=9\n", 120.0),
        ):
            job = site.cluster.submit(script=b"#!/bin/sh\n" + script, gpus=8, eligible=site.cluster.time + later)
            site.cycle(seconds=180.0)
            site.cluster.start(job)
            site.cycle(5)
            site.cluster.end(job, state)
            site.cycle()
        never = site.cluster.submit(gpus=8)
        site.cycle()
        site.cluster.end(never, "CANCELLED")
        site.cycle()
    made = found("--from-ledger", "--ledger", str(site.path), "--cluster", "1x8", "--samples", "1")
    assert made["statements"][0].startswith("2 of 4 jobs are managed")
    assert made["waits"]["jobs"] == 4
    assert made["waits"]["true_mean"] == pytest.approx((3 * 180.0 + 60.0) / 4, abs=1.0)


def test_the_past_may_come_from_the_ledger_with_its_directives(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        for _ in range(3):
            job = site.cluster.submit(script=b"#PLUG --max-iterations=20\n", gpus=8)
            site.cycle()
            site.cluster.start(job)
            site.cycle(5)
            site.cluster.end(job)
            site.cycle()
    output = replay("--from-ledger", "--ledger", str(site.path), "--cluster", "1x8", "--samples", "1")
    assert "3 of 3 jobs are managed" in output
    assert "Not known: runs before a requeue, reservations" in output


def test_a_configuration_that_is_named_has_to_be_there(true: Path) -> None:
    result = CliRunner().invoke(main, ["replay", "--sacct", str(true), "--cluster", "1x8", "--config", "/none.toml"])
    assert result.exit_code == 1
    assert "there is no configuration /none.toml" in result.output


def test_a_past_a_cluster_and_a_share_have_to_be_named(true: Path) -> None:
    assert "name one log of past jobs" in replay("--cluster", "1x8", code=1)
    assert "name one log of past jobs" in replay("--sacct", str(true), "--since", "today", code=1)
    assert "name its slurm.conf with --slurm-conf, or --cluster" in replay("--sacct", str(true), code=1)
    assert "--curves is for --assume-directives" in replay("--sacct", str(true), "--curves", "c", code=1)


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_simulated(true: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = str(tmp_path / "no" / "page.html")
    assert "--html" in replay("--sacct", str(true), "--cluster", "1x8", "--html", page, code=1)


def test_a_log_with_waits_in_the_standard_workload_format_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    rows = [f"{n} {300 * n} {300 * n} 600 8 -1 -1 8 3600 -1 1 {n % 2} 1 -1 1 1 -1 -1" for n in range(6)]
    path.write_text("; MaxProcs: 8\n; MaxNodes: 1\n" + "\n".join(rows) + "\n")
    made = found(f"swf:{path}")
    assert made["cluster"] == "1x8"
    assert abs(made["waits"]["apart"]) < 0.05


def test_jobs_that_no_node_can_hold_are_counted(tmp_path: Path) -> None:
    rows = [row(f"{n}", clock(60 * n), clock(60 * n)).replace("gres/gpu=8|8", "gres/gpu=2|64") for n in range(2)]
    made = found("--sacct", str(write(tmp_path, *rows)), "--cluster", "1x8x16x1000")
    assert made["never_started"] == 2
    assert any("2 jobs never start" in each for each in made["warnings"])


LIMITED = "JobID|User|Account|QOS|Submit|Eligible|Start|ElapsedRaw|Timelimit|AllocTRES|NCPUS|State|JobName"
QOS = "Name|Priority|MaxTRESPU|MaxWall\nnormal|0||\nfew|0|gres/gpu=2|1-00:00:00\n"
DUMP = (
    "Cluster - 'c'\nParent - 'root'\nAccount - 'lab':GrpTRES=gres/gpu=3\nParent - 'lab'\nUser - 'ada'\nUser - 'bob'\n"
)


@pytest.fixture
def limited(tmp_path: Path) -> tuple[str, ...]:
    """Jobs of one GPU and ten minutes on eight idle GPUs, all submitted at once, that started as the limits of DUMP and
    QOS let them: two of Ada's at once, and one of Bob's; the account has three."""
    starts = {"ada": ["10:00:00", "10:00:00", "10:10:00", "10:10:00"], "bob": ["10:00:00", "10:10:00"]}
    lines = [LIMITED]
    for user, each in starts.items():
        for number, start in enumerate(each):
            job = f"{len(lines)}|{user}|lab|few|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T{start}"
            lines.append(f"{job}|600|01:00:00|gres/gpu=1|1|COMPLETED|train{number}")
    for name, text in (("sacct.txt", "\n".join(lines) + "\n"), ("qos.txt", QOS), ("dump.cfg", DUMP)):
        (tmp_path / name).write_text(text)
    return "--sacct", str(tmp_path / "sacct.txt"), "--cluster", "1x8"


def test_jobs_that_waited_for_limits_wait_as_they_did_once_the_limits_are_given(
    limited: tuple[str, ...], tmp_path: Path
) -> None:
    without = found(*limited)
    assert without["waits"]["replayed_mean"] == 0
    assert "limits of QOS and associations, reservations" in without["warnings"][0]
    made = found(*limited, "--qos", str(tmp_path / "qos.txt"), "--sacctmgr", str(tmp_path / "dump.cfg"))
    assert made["waits"]["true_mean"] == 300
    assert made["waits"]["replayed_mean"] == pytest.approx(300, abs=5)
    assert made["waits"]["start_error"] <= 3
    assert made["has_limits"]
    assert "limits of QOS: MaxWall" in made["not_followed"]


def test_limits_that_cannot_be_read_are_refused(limited: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "dump.cfg").write_text("Account: lab\n")
    assert "dump.cfg, line 1: is not a line of a dump" in replay(
        *limited, "--sacctmgr", str(tmp_path / "dump.cfg"), code=1
    )
    assert "no-such-file cannot be read" in replay(*limited, "--qos", "no-such-file", code=1)


def in_partitions(folder: Path) -> tuple[str, ...]:
    """Jobs of one GPU and ten minutes, two of a partition with one GPU, and one whose partition is gone."""
    lines = [LIMITED.replace("|QOS|", "|Partition|")]
    for partition, start in (("one", "10:00:00"), ("one", "10:10:00"), ("two", "10:00:00"), ("gone", "10:00:00")):
        job = f"{len(lines)}|ada|lab|{partition}|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T{start}"
        lines.append(f"{job}|600|01:00:00|gres/gpu=1|1|COMPLETED|train")
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n")
    (folder / "slurm.conf").write_text(
        "NodeName=n[1-3] Gres=gpu:1 CPUs=4\nPartitionName=one Nodes=n1\nPartitionName=two Nodes=n[2-3] PriorityTier=5\n"
    )
    return "--sacct", str(folder / "sacct.txt"), "--slurm-conf", str(folder / "slurm.conf"), "--samples", "1"


def test_jobs_wait_for_the_nodes_of_their_partition(tmp_path: Path) -> None:
    made = found(*in_partitions(tmp_path))
    assert made["waits"]["true_mean"] == 150
    assert made["waits"]["start_error"] <= 5
    assert made["waits"]["replayed_mean"] == pytest.approx(150, abs=5)
    assert (
        "partitions that are not in slurm.conf or could not hold these jobs, which run on any node: gone (1 job)"
        in made["not_followed"]
    )


def test_partitions_are_left_aside_where_the_cluster_has_other_nodes_and_that_is_said(tmp_path: Path) -> None:
    made = found(*in_partitions(tmp_path), "--cluster", "4x1")
    assert made["waits"]["replayed_mean"] == 0
    assert (
        "nodes, PriorityTier and OverSubscribe of partitions (the nodes are not those of slurm.conf)"
        in made["not_followed"]
    )


def test_jobs_wait_for_gpus_of_the_type_that_they_requested(tmp_path: Path) -> None:
    lines = [LIMITED.replace("|QOS|", "|Partition|").replace("AllocTRES", "ReqTRES")]
    for kind, start in (("fast", "10:00:00"), ("fast", "10:10:00"), ("slow", "10:00:00"), ("gone", "10:00:00")):
        job = f"{len(lines)}|ada|lab|all|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T{start}"
        lines.append(f"{job}|600|01:00:00|gres/gpu:{kind}=1,gres/gpu=1|1|COMPLETED|train")
    (tmp_path / "sacct.txt").write_text("\n".join(lines) + "\n")
    nodes = "NodeName=n1 Gres=gpu:fast:1 CPUs=4\nNodeName=n[2-3] Gres=gpu:slow:1 CPUs=4\n"
    (tmp_path / "slurm.conf").write_text(f"{nodes}SchedulerParameters=bf_interval=1\n")
    made = found("--sacct", str(tmp_path / "sacct.txt"), "--slurm-conf", str(tmp_path / "slurm.conf"), "--samples", "1")
    assert made["waits"]["replayed_mean"] == pytest.approx(150, abs=5)
    assert made["waits"]["start_error"] <= 5
    assert "types of GPUs that no node has, whose jobs run on any: gone (1 job)" in made["not_followed"]
