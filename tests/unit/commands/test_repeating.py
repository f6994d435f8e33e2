"""--iterate: a report again and again, in processes of their own that are interrupted."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from slurmplug.commands import repeating
from slurmplug.errors import LedgerError, UsageError
from tests.ledgers import Site, run

PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what they start in the background ignore it
from slurmplug.commands import main
main()
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    with Site(tmp_path) as site:
        site.cluster.submit()
        site.cycle()
    return site.path


@contextmanager
def repeated(command: str, ledger: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", PROGRAM, command, "--ledger", str(ledger), "-i", "1", *more]
    with subprocess.Popen(arguments, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_headings(process: subprocess.Popen[str], wanted: int) -> None:
    assert process.stdout is not None
    while wanted:
        line = process.stdout.readline()
        assert line, "it ended"
        wanted -= "RANK" in line


@pytest.mark.parametrize("command", ["queue", "prio"])
def test_it_repeats_until_ctrl_c_which_ends_it_without_a_word(ledger: Path, command: str) -> None:
    with repeated(command, ledger) as process:
        read_headings(process, 2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + signal.SIGINT, "")


def test_it_ends_without_a_word_when_nobody_reads_it_any_more(ledger: Path) -> None:
    with repeated("queue", ledger) as process:
        read_headings(process, 1)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == ""


def test_it_goes_on_after_a_report_that_could_not_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: Iterator[BaseException | None] = iter([None, LedgerError("locked"), None, KeyboardInterrupt()])
    monkeypatch.setattr("slurmplug.commands.repeating.time.sleep", lambda _: None)

    def report() -> None:
        if (error := next(outcomes)) is not None:
            raise error

    with pytest.raises(SystemExit):
        repeating.repeat(report, 1)
    assert capsys.readouterr().err == "Error: locked\n"
    assert next(outcomes, "all") == "all"


@pytest.mark.parametrize("error", [LedgerError("none"), UsageError("none")])
def test_a_first_report_that_cannot_be_made_ends_it(error: Exception) -> None:
    def report() -> None:
        raise error

    with pytest.raises(type(error)):
        repeating.repeat(report, 1)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "86401"])
def test_seconds_that_it_cannot_wait_are_refused(ledger: Path, seconds: str) -> None:
    assert run("queue", "--ledger", str(ledger), "-i", seconds).exit_code == 2
