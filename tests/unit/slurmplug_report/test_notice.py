"""Notices of the daemon on a job's standard error."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from slurmplug.spool.requests import write_notices
from slurmplug.spool.values import RunId
from slurmplug_report.report import NOTICE_BYTES

PROGRAM = """
import time
from slurmplug_report import report
for i in range(4):
    report(iteration=i)
    time.sleep(0.8)
"""


WRAPPED = [
    *("-c", "from slurmplug.commands import main; main()", "run", "--pattern", "(?P<iteration>[0-9]+)", "--"),
    *(sys.executable, "-c", "import time\nfor i in range(4): print(i, flush=True), time.sleep(0.8)"),
]


def said(spool: Path, run: str = "7", program: Sequence[str] = ("-c", PROGRAM), **more: str) -> str:
    """The standard error of a program of job 7 that reports for three seconds."""
    environment = {"SLURM_JOB_ID": run, "SLURMPLUG_SPOOL": str(spool), "PATH": "", **more}
    done = subprocess.run([sys.executable, *program], env=environment, capture_output=True, text=True, check=True)
    return done.stderr


def spool_in(folder: Path) -> Path:
    for name in ("reports", "requests"):
        (folder / name).mkdir(mode=0o755)
    folder.chmod(0o755)
    return folder


def test_a_notice_is_printed_once_by_the_run_that_it_is_for(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    write_notices(spool, {RunId(7, 0): "Its target is 0.92."})
    assert said(spool) == "slurmplug: Its target is 0.92.\n"
    assert said(spool, run="8") == ""


def test_of_the_tasks_of_a_program_that_is_wrapped_the_first_one_prints_it(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    write_notices(spool, {RunId(7, 0): "Its target is 0.92."})
    assert said(spool, program=WRAPPED, SLURM_PROCID="0") == "slurmplug: Its target is 0.92.\n"
    assert said(spool, program=WRAPPED, SLURM_PROCID="1") == ""


def test_a_run_that_has_a_notice_keeps_it(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    write_notices(spool, {RunId(7, 0): "one"})
    before = (spool / "requests" / "7.0.notice").stat()
    write_notices(spool, {RunId(7, 0): "one, with another figure"})
    assert (spool / "requests" / "7.0.notice").stat() == before


def test_what_is_printed_is_short_and_cannot_move_a_cursor(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    write_notices(spool, {RunId(7, 0): "a\x1b[2J\n" + "b" * 5_000})
    shown = said(spool)
    assert shown.startswith("slurmplug: a [2J bbb")
    assert len(shown) <= len("slurmplug: \n") + NOTICE_BYTES
    assert shown.count("\n") == 1
