"""The pyslurm client: what it sends itself, what it leaves to the command line, and that importing it harms nobody."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from policies.snapshot import JobKey
from slurmplug.cluster import api_client
from slurmplug.cluster.api_client import ApiClient, import_pyslurm, make_client
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Command, Outcome
from slurmplug.config.schema import SlurmSettings


class RPCError(Exception):
    """Slurm's error, by its number and in its words."""

    def __init__(self, errno: int, words: str) -> None:
        super().__init__(words)
        self.errno = errno


class FakePyslurm:
    """Job, JobSubmitDescription and RPCError; 0 is not sent, as by the real one."""

    RPCError = RPCError

    def __init__(self, fails: dict[int, RPCError] | None = None) -> None:
        self.modified: list[Any] = []
        self.fails = fails or {}

    def Job(self, job_id: int) -> Any:
        outer = self

        class One:
            def modify(self, changes: dict[str, int]) -> None:
                assert all(changes.values()), "pyslurm takes 0 for not set"
                if job_id in outer.fails:
                    raise outer.fails[job_id]
                outer.modified.append((job_id, changes))

        return One()

    def JobSubmitDescription(self, **changes: int) -> dict[str, int]:
        return changes


@pytest.fixture
def by_scontrol(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The addresses of each call of the command line."""
    calls: list[list[str]] = []

    def write(self: CliClient, commands: list[Command], addresses: list[str]) -> list[Outcome]:
        calls.append(list(addresses))
        return [Outcome(command.id, "done", "scontrol") for command in commands]

    monkeypatch.setattr(CliClient, "write", write)
    return calls


def update(name: str, **fields: str) -> Command:
    return Command(name, "update", JobKey("c", 1, 0), fields)


def test_site_factors_go_by_pyslurm_and_the_rest_by_one_scontrol_in_order(by_scontrol: list[list[str]]) -> None:
    module = FakePyslurm()
    commands = [
        update("a", SiteFactor="5"),
        update("b", SiteFactor="0"),
        Command("c", "requeue", JobKey("c", 3, 0)),
        update("d", SiteFactor="-7"),
        update("e", SiteFactor="9"),
        update("f", SiteFactor="3", Gres="gpu:2"),
    ]
    outcomes = ApiClient(module, None, None, 20.0).write(commands, ["1", "2", "3", "4", "5_[0-3]", "6"])
    assert [outcome.command for outcome in outcomes] == list("abcdef")
    assert [outcome.message for outcome in outcomes] == ["", "scontrol", "scontrol", "", "scontrol", "scontrol"]
    assert module.modified == [(1, {"site_factor": 5}), (4, {"site_factor": -7})]
    assert by_scontrol == [["2", "3"], ["5_[0-3]", "6"]]


@pytest.mark.parametrize("value", ["", "-", "1e3", "0", "-0", "2147483646", "99999999999", "\u0661", "5 Priority=1"])
def test_what_is_no_site_factor_is_left_to_the_command_line(by_scontrol: list[list[str]], value: str) -> None:
    module = FakePyslurm()
    ApiClient(module, None, None, 20.0).write([update("a", SiteFactor=value)], ["1"])
    assert module.modified == []
    assert by_scontrol == [["1"]]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RPCError(2017, "Invalid job id specified"), "refused"),
        (RPCError(2002, "Access/permission denied"), "refused"),
        (RPCError(1800, "Unable to contact slurm controller (connect failure)"), "unknown"),
        (RPCError(1000, "Unexpected message received"), "unknown"),
        (RPCError(11, "Resource temporarily unavailable"), "unknown"),
        (RPCError(5004, "Socket timed out on send/recv operation"), "unknown"),
        (RPCError(2027, "Slurm backup controller in standby mode"), "unknown"),
        (RPCError(0, "Success"), "unknown"),
    ],
)
def test_what_slurm_refuses_and_what_it_does_not_answer_differ(error: RPCError, status: str) -> None:
    outcomes = ApiClient(FakePyslurm({1: error}), None, None, 20.0).write([update("a", SiteFactor="5")], ["1"])
    assert [(each.status, each.message) for each in outcomes] == [(status, str(error))]


def test_after_a_call_that_is_not_answered_the_others_go_by_scontrol_whose_time_has_a_limit(
    by_scontrol: list[list[str]],
) -> None:
    module = FakePyslurm({1: RPCError(2017, "Invalid job id specified"), 2: RPCError(1802, "receive failure")})
    commands = [update(name, SiteFactor="5") for name in "abcd"]
    outcomes = ApiClient(module, None, None, 20.0).write(commands, ["1", "2", "3", "4"])
    assert [each.status for each in outcomes] == ["refused", "unknown", "done", "done"]
    assert by_scontrol == [["3", "4"]]


def pretended(folder: Path, text: str) -> Path:
    """A pyslurm that another process would import."""
    (folder / "pyslurm.py").write_text(text)
    return folder


def test_a_pyslurm_that_ends_the_process_is_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fatal = "import os\nos.write(2, b'fatal: Could not establish a configuration source\\n')\nos._exit(1)\n"  # as in C
    monkeypatch.setenv("PYTHONPATH", str(pretended(tmp_path, fatal)))
    made = make_client(SlurmSettings(client="pyslurm"))
    assert type(made) is CliClient
    assert "Could not establish a configuration source" in caplog.text
    assert "the command line is used" in caplog.text


def test_a_pyslurm_that_is_not_there_leaves_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pretended(tmp_path, "raise ImportError('of another Slurm')\n")))
    assert type(make_client(SlurmSettings(client="pyslurm"))) is CliClient
    assert import_pyslurm(None, python=str(tmp_path / "no-python")) is None


def test_it_is_imported_once_proven_with_the_configured_slurm_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "slurm.conf"
    text = (
        f"import os\nassert os.environ['SLURM_CONF'] == {str(conf)!r}\nJob = JobSubmitDescription = RPCError = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(pretended(tmp_path, text)))
    monkeypatch.setenv("SLURM_CONF", "elsewhere")
    module = import_pyslurm(conf, load=lambda name: sys)
    assert module is sys
    assert os.environ["SLURM_CONF"] == str(conf)


def test_nothing_is_imported_unless_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "import_pyslurm", lambda conf: pytest.fail("it was looked for"))
    assert type(make_client(SlurmSettings())) is CliClient
    assert "pyslurm" not in sys.modules
