"""Who may do what changes slurmplug for everybody."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ledgers import Site, run

NOBODY = 65534
COMMANDS = (["pause"], ["resume"], ["reset"], ["reset", "--job", "1"])


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(os.getuid())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for each in (tmp_path, *list(tmp_path.parents)[:-2]):
        each.chmod(0o755)
    sacctmgr = tmp_path / "sacctmgr"
    sacctmgr.write_text("#!/bin/sh\necho 'root|Administrator'\n")
    sacctmgr.chmod(0o755)
    (tmp_path / "slurmplug.toml").write_text(f'ledger.path = "{tmp_path}/ledger.db"\nslurm.bin = "{tmp_path}"\n')
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("where", ["on the controller", "on a login node"])
def test_a_user_is_told_that_it_is_not_theirs_to_do(folder: Path, command: list[str], where: str) -> None:
    if where == "on the controller":
        Site(folder).ledger.close()
        (folder / "ledger.db").chmod(0o640)
    with as_nobody():
        result = run(*command, "--config", str(folder / "slurmplug.toml"))
    assert result.exit_code == 1
    assert "Error: that is not yours to do" in result.output


def test_an_operator_gives_back_what_was_set_also_without_the_ledger(folder: Path) -> None:
    (folder / "sacctmgr").write_text("#!/bin/sh\necho 'nobody|Operator'\n")
    with as_nobody():
        result = run("reset", "--config", str(folder / "slurmplug.toml"))
    assert "resetting what Slurm and the spool show" in result.output
