"""Completion, typed in real shells: what the packages install, from the same source as --help."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("slurmplug")
SETUP = {
    "bash": "source {script}\n",
    "zsh": "autoload -U compinit; compinit -u -D; source {script}\n",
}
START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
ENVIRONMENT = {"PATH": f"{PROGRAM.parent}:/usr/bin:/bin", "TERM": "dumb", "LC_ALL": "C.UTF-8", "PS1": "$ "}


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    assert shutil.which(name), f"install it: apt-get install {name}"
    return name


@pytest.fixture
def script(shell: str, tmp_path: Path) -> Path:
    """As packaging/install makes it."""
    made = subprocess.run(
        [str(PROGRAM)], env={**ENVIRONMENT, "_SLURMPLUG_COMPLETE": f"{shell}_source"}, capture_output=True, check=True
    )
    file = tmp_path / f"completion.{shell}"
    file.write_bytes(made.stdout)
    return file


def completed(shell: str, script: Path, typed: str, expected: str) -> str:
    """What the shell shows after the Tab key, pressed again until that is as expected, for half a minute at most."""
    if shell == "fish":
        asked = f"source {script}; complete --do-complete '{typed}'"
        home = {**ENVIRONMENT, "HOME": str(script.parent)}
        return subprocess.run(["fish", "-c", asked], env=home, capture_output=True, text=True, check=True).stdout
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(START[shell][0], START[shell], {**ENVIRONMENT, "HOME": str(script.parent)})
    try:
        os.write(terminal, SETUP[shell].format(script=script).encode() + b"echo read''y\n")
        shown = _read(terminal, "ready")
        os.write(terminal, typed.encode())
        shown = ""
        for _ in range(6):
            os.write(terminal, b"\t")
            shown += _read(terminal, expected, 5.0)
            if expected in shown:
                break
        return re.sub(r"[\x07\r]", "", shown)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def _read(terminal: int, expected: str, seconds: float = 60.0) -> str:
    shown, until = "", time.monotonic() + seconds
    while expected not in shown and select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("slurmplug savi", "savings"),
        ("slurmplug savings --star", "--starttime"),
        ("slurmplug savings --by acc", "account"),
        ("slurmplug policy prom", "promote"),
    ],
)
def test_commands_options_and_values_are_completed(shell: str, script: Path, typed: str, expected: str) -> None:
    assert expected in completed(shell, script, typed, expected)
