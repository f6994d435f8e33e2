"""The command line as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from slurmplug.commands import COMMANDS
from slurmplug.sim.experiment.simulation import Simulation
from tests.ledgers import Site, run


def test_each_command_is_named_with_what_it_is_for_in_full() -> None:
    result = run("--help").output
    for name, about in COMMANDS.items():
        assert f"  {name:<12}  {about}\n" in result


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_says_how_it_is_used(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.output.lower().startswith(f"usage: main {name} ")


def test_a_command_that_is_not_there_is_refused() -> None:
    result = run("que")
    assert result.exit_code == 2
    assert "No such command 'que'" in result.output


@pytest.mark.parametrize("command", [["acct", "-aS2023-11-01"], ["queue", "-n"]])
def test_an_answer_that_cannot_be_written_is_a_mistake_and_no_crash(tmp_path: Path, command: list[str]) -> None:
    with Site(tmp_path) as site:
        site.cluster.submit()
        site.cycle()
        program = [sys.executable, "-c", "from slurmplug.commands import main; main()"]
        command = [*program, command[0], "--ledger", str(site.path), *command[1:]]
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


def test_a_file_that_cannot_be_written_is_refused_before_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulation, "run", lambda *_: pytest.fail("it ran"))
    path = tmp_path / "none" / "figures.json"
    result = run("simulate", "small", "--cluster", "4x4", "--policy", "fifo", "--json", str(path))
    assert result.exit_code == 1
    assert f"{path} cannot be written: No such file or directory" in result.output


def test_figures_of_before_stay_where_a_simulation_fails(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text("those of before", encoding="utf-8")
    result = run("simulate", "no-such-workload", "--cluster", "4x4", "--policy", "fifo", "--json", str(path))
    assert result.exit_code != 0
    assert path.read_text(encoding="utf-8") == "those of before"


def test_a_sandbox_whose_folder_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("sandbox", "up", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert f"{tmp_path}/file: Not a directory" in result.output


def test_what_cannot_be_read_of_a_sandbox_is_named(tmp_path: Path) -> None:
    (tmp_path / "sandbox.json").mkdir()
    result = run("sandbox", "down", str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path}/sandbox.json: Is a directory" in result.output


def test_a_demo_whose_folder_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("sandbox", "demo", str(tmp_path / "file" / "demo"))
    assert result.exit_code == 1
    assert f"{tmp_path}/file/demo: Not a directory" in result.output


def test_the_collector_is_spared_what_a_command_loads_and_goes_on_collecting() -> None:
    code = """
import gc
from slurmplug.commands import main
before = gc.get_freeze_count()
main(["queue", "--helpformat"], standalone_mode=False)
after = gc.get_freeze_count()
main(["queue", "--helpformat"], standalone_mode=False)
print(before, after > 10_000, gc.get_freeze_count() <= after, gc.isenabled())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "0 True True True"
