"""The pyslurm client: what it writes itself, what scontrol writes, and that a pyslurm that fails harms nobody.

A module stands for pyslurm, as a real one cannot be made to hang, to end its process, or to be of another release.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from policies.snapshot import JobKey
from slurmplug.cluster import pyslurm_process
from slurmplug.cluster.api_client import ApiClient, make_client
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Command, Outcome, Site
from slurmplug.cluster.pyslurm_process import MOST_FAILURES, Proof, prove, trial
from slurmplug.config.schema import SlurmSettings
from slurmplug.processes import child as processes

PROVEN = 60.0
"""Seconds; a start takes one where nothing else runs."""
SITE = Site("c", "25.11.7", booted=1.0)
FAKE = """
import os, time
from pathlib import Path
from types import SimpleNamespace

__version__ = "25.11.2"
folder = Path(__file__).parent
slurmctld = SimpleNamespace(Config=SimpleNamespace(load=lambda: SimpleNamespace(version="25.11.7")))

class RPCError(Exception):
    def __init__(self, errno, words):
        super().__init__(words)
        self.errno = errno

def JobSubmitDescription(**changes):
    return changes

class Job:
    def __init__(self, job_id):
        self.id = job_id

    def modify(self, changes):
        assert changes["site_factor"], "pyslurm takes 0 for not set"
        {modify}
        with (folder / "modified").open("a") as file:
            file.write(f"{{self.id}}={{int(changes['site_factor'])}} ")

{more}
"""


class Made:
    """A client whose pyslurm is a module in a folder, and whose scontrol only notes what it would write."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.conf = folder / "slurm.conf"
        self.conf.write_text("")
        self.folder = folder
        self.by_scontrol: list[list[str]] = []
        self.slurmctld = SITE
        patch.syspath_prepend(str(folder))
        patch.setattr(processes, "PAUSE", 0.0)
        patch.setattr(CliClient, "write", lambda _, *arguments: self._scontrol(*arguments))
        patch.setattr(CliClient, "site", lambda _: self.slurmctld)
        self.client = ApiClient(self.conf, None, 20.0)

    def _scontrol(self, commands: Sequence[Command], addresses: Sequence[str]) -> list[Outcome]:
        self.by_scontrol.append(list(addresses))
        return [Outcome(command.id, "done", "scontrol") for command in commands]

    def module(self, modify: str = "pass", more: str = "") -> None:
        (self.folder / "pyslurm.py").write_text(FAKE.format(modify=modify, more=more))

    def ready(self) -> bool:
        """After what happened, as the next cycle would find it."""
        self.client.site()
        until = time.monotonic() + PROVEN
        while not (found := self.client.ready(0.1)) and not self.given_up and time.monotonic() < until:
            pass
        return found

    @property
    def given_up(self) -> bool:
        return self.client.pyslurm.given_up

    def write(self, *jobs: int) -> list[str]:
        outcomes = self.client.write(
            [update(str(job), SiteFactor=str(job)) for job in jobs], [str(job) for job in jobs]
        )
        assert [each.command for each in outcomes] == [str(job) for job in jobs]
        return [each.message or each.status for each in outcomes]

    @property
    def modified(self) -> str:
        path = self.folder / "modified"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    one = Made(tmp_path, monkeypatch)
    one.module()
    yield one
    one.client.pyslurm.end()


def update(name: str, **fields: str) -> Command:
    return Command(name, "update", JobKey("c", 1, 0), fields)


# --- which writes -------------------------------------------------------------------------------------------------


def test_site_factors_are_written_by_pyslurm_zero_too(made: Made) -> None:
    assert made.ready()
    commands = [update(value, SiteFactor=value) for value in ("5", "-7", "0")]
    outcomes = made.client.write(commands, ["1", "2", "3"])
    assert outcomes == [Outcome(value, "done") for value in ("5", "-7", "0")]
    assert made.modified == "1=5 2=-7 3=0"
    assert made.by_scontrol == []


def test_a_batch_with_anything_else_goes_whole_through_one_scontrol(made: Made) -> None:
    assert made.ready()
    made.client.write([Command("a", "release", JobKey("c", 1, 0)), update("b", SiteFactor="5")], ["1", "2"])
    made.client.write([update("c", SiteFactor="5"), update("d", SiteFactor="5")], ["1", "2_[0-3]"])
    assert made.by_scontrol == [["1", "2"], ["1", "2_[0-3]"]]
    assert made.modified == ""


@pytest.mark.parametrize("value", ["", "-", "1e3", "2147483646", "99999999999", "\u0661", "5 Priority=1"])
def test_what_is_no_site_factor_is_left_to_the_command_line(made: Made, value: str) -> None:
    assert made.ready()
    made.client.write([update("a", SiteFactor=value)], ["1"])
    assert (made.modified, made.by_scontrol) == ("", [["1"]])


def test_nothing_waits_for_its_start(made: Made) -> None:
    made.module(more="time.sleep(3600)")
    made.client.site()
    assert made.write(1, 2) == ["scontrol", "scontrol"]
    assert made.by_scontrol == [["1", "2"]]


def test_whether_it_works_is_in_the_log_before_anything_is_written(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    made.module(more="__version__ = '22.5.0'")
    made.client.prepare()  # before Slurm was read
    made.client.site()
    until = time.monotonic() + PROVEN
    while not made.given_up and time.monotonic() < until:
        made.client.prepare()
        time.sleep(0.05)
    assert "its release 22.5.0 is not for Slurm 25.11.7" in caplog.text
    assert (made.modified, made.by_scontrol) == ("", [])


# --- what slurmctld answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errno", "words"), [(2017, "Invalid job id specified"), (2002, "Access/permission denied")])
def test_what_slurmctld_refuses_is_refused(made: Made, errno: int, words: str) -> None:
    made.module(modify=f"if self.id == 2: raise RPCError({errno}, {words!r})")
    assert made.ready()
    assert made.write(1, 2, 3) == ["done", words, "done"]
    assert made.modified == "1=1 3=3"
    assert made.by_scontrol == []


@pytest.mark.parametrize(
    ("errno", "words"),
    [
        (1800, "Unable to contact slurm controller (connect failure)"),
        (1000, "Unexpected message received"),
        (11, "Resource temporarily unavailable"),
        (5004, "Socket timed out on send/recv operation"),
        (2027, "Slurm backup controller in standby mode"),
        (0, "Success"),
    ],
)
def test_what_slurmctld_does_not_answer_is_tried_again_by_scontrol_with_the_rest(
    made: Made, errno: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    made.module(modify=f"if self.id == 2: raise RPCError({errno}, {words!r})")
    assert made.ready()
    assert made.write(1, 2, 3) == ["done", "scontrol", "scontrol"]
    assert made.by_scontrol == [["2", "3"]]
    assert words in caplog.text


# --- a pyslurm that fails -------------------------------------------------------------------------------------------


def test_a_write_that_hangs_is_cut_off_and_done_by_scontrol(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made.module(modify="if self.id == 2: time.sleep(3600)")
    assert made.ready()
    monkeypatch.setattr(pyslurm_process, "BATCH_SECONDS", 2.0)
    assert made.write(1, 2, 3) == ["done", "scontrol", "scontrol"]
    assert "1 of 3 writes were answered within 2 s" in caplog.text
    assert made.ready()
    assert made.write(3) == ["done"]


@pytest.mark.parametrize("ending", ["os._exit(1)", "os.abort()", "raise TypeError('of another pyslurm')"])
def test_a_write_that_ends_the_process_is_done_by_scontrol_and_the_process_started_again(
    made: Made, ending: str
) -> None:
    made.module(modify=f"if self.id == 2: {ending}")
    assert made.ready()
    assert made.write(1, 2, 3) == ["done", "scontrol", "scontrol"]
    assert made.ready()
    assert made.write(1, 3) == ["done", "done"]


def test_a_process_that_was_killed_between_two_cycles_is_started_again(made: Made) -> None:
    assert made.ready()
    child = made.client.pyslurm._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    while child.running:
        time.sleep(0.01)
    assert made.write(1) == ["scontrol"]
    assert made.ready()
    assert made.write(1) == ["done"]


def test_a_daemon_that_ends_does_not_wait_for_it(made: Made) -> None:
    made.module(modify="time.sleep(3600)")
    assert made.ready()
    made.client.finish_within(0.0)
    began = time.monotonic()
    assert made.write(1) == ["scontrol"]
    assert time.monotonic() - began < pyslurm_process.BATCH_SECONDS


def test_after_failures_in_a_row_it_is_given_up_with_a_line_in_the_log(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    made.module(modify="if self.id == 1: os._exit(1)")
    for _ in range(MOST_FAILURES):
        assert not made.given_up
        assert made.ready()
        assert made.write(1, 2) == ["scontrol", "scontrol"]
    assert made.given_up
    assert [each.levelno for each in caplog.records if "given up" in each.message] == [logging.ERROR]
    assert not made.ready()
    assert made.write(2) == ["scontrol"]


def test_failures_that_are_not_in_a_row_are_forgotten(made: Made) -> None:
    made.module(modify="if self.id == 1: os._exit(1)")
    for _ in range(MOST_FAILURES + 1):
        assert made.ready()
        made.write(1)
        assert made.ready()
        made.write(2)
    assert not made.given_up


# --- when it is started anew ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["slurmctld", "slurm.conf", "a file that slurm.conf includes"])
def test_another_start_of_slurmctld_or_another_configuration_starts_it_anew_and_forgets_failures(
    made: Made, what: str
) -> None:
    made.module(more="os._exit(1)")
    assert not made.ready()
    assert made.given_up
    made.module()
    assert not made.ready()
    if what == "slurmctld":
        made.slurmctld = replace(SITE, booted=2.0)
    else:
        (made.folder / ("slurm.conf" if what == "slurm.conf" else "nodes.conf")).write_text("SlurmctldPort=7000")
    assert made.ready()
    assert made.write(1) == ["done"]


def test_the_process_that_ran_before_is_another_one_after_slurmctld_was_started_again(made: Made) -> None:
    made.module(more="(folder / 'pids').open('a').write(f'{os.getpid()} ')")
    assert made.ready()
    made.slurmctld = replace(SITE, booted=2.0)
    assert made.ready()
    assert len(set((made.folder / "pids").read_text().split())) == 2


# --- its proof ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("__version__ = '24.5.0'", "its release 24.5.0 is not for Slurm 25.11.7"),
        ("raise ImportError('libslurmfull.so: cannot open shared object file')", "libslurmfull.so"),
    ],
)
def test_another_release_or_none_is_given_up_at_once(
    made: Made, more: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    made.module(more=more)
    assert not made.ready()
    assert made.given_up
    assert problem in caplog.text
    assert caplog.text.count("given up") == 1
    assert made.write(1) == ["scontrol"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            "def refuse(): raise RPCError(1000, 'Incompatible versions')\nslurmctld.Config.load = refuse",
            "slurmctld does not answer it: Incompatible versions",
        ),
        (
            "slurmctld.Config.load = lambda: SimpleNamespace(version='25.11.3')",
            "it reaches a slurmctld of release 25.11.3, not 25.11.7",
        ),
        ("os.write(2, b'fatal: no configuration source'); os._exit(1)", "its import ends the process"),
    ],
)
def test_what_is_not_proven_never_writes(made: Made, more: str, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    made.module(more=more)
    assert not made.ready()
    assert made.given_up
    assert caplog.text.count(problem) == MOST_FAILURES
    assert made.modified == ""


def test_an_import_that_hangs_is_given_up(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pyslurm_process, "PROOF_SECONDS", 0.2)
    made.module(more="time.sleep(3600)")
    assert not made.ready()
    assert "takes too long to prove that it works" in caplog.text


def test_it_has_the_slurm_conf_of_the_configuration(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "elsewhere")
    made.module(more=f"assert os.environ['SLURM_CONF'] == {str(made.conf)!r}")
    assert made.ready()
    assert os.environ["SLURM_CONF"] == "elsewhere"


def test_the_daemon_itself_never_imports_it(made: Made) -> None:
    assert made.ready()
    made.write(1)
    assert "pyslurm" not in sys.modules


def test_doctor_tries_it_in_a_process_that_then_ends(made: Made) -> None:
    made.module(more="(folder / 'pid').write_text(str(os.getpid()))")
    assert trial(made.conf, "25.11.7") == Proof("25.11.2")
    pid = int((made.folder / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    made.module(more="os._exit(1)")
    assert "its import ends the process" in trial(made.conf, "25.11.7").problem


def test_without_pyslurm_the_proof_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyslurm", None)
    proof, module = prove("25.11.7")
    assert (proof.lasting, module) == (True, None)
    assert "cannot be imported" in proof.problem
    assert proof == Proof("", proof.problem, lasting=True)


def test_the_configuration_chooses_the_client() -> None:
    assert type(make_client(SlurmSettings())) is CliClient
    assert type(make_client(SlurmSettings(client="pyslurm"))) is ApiClient
