"""Rules of the rooms that no import-linter contract can say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurmplug

ROOT = Path(slurmplug.__file__).parents[1]
PACKAGES = ("slurmplug", "slurmplug_report", "policies", "predictors")

STARTERS = ("slurmplug/cluster/", "slurmplug/sandbox/")
"""Only these folders start Slurm's programs."""
OTHER_STARTERS = ("slurmplug/endpoint/munge.py", "slurmplug/commands/run.py")
"""These start programs that are not Slurm's: munge and unmunge; the command line that a user gives."""
STARTING_MODULES = re.compile(r"(_?posixsubprocess|subprocess|pty|asyncio|multiprocessing)(\..*)?")
STARTING_FUNCTIONS = re.compile(r"(system|popen|fork(pty)?|exec[vl]p?e?|(posix_)?spawn[vl]?p?e?)")
"""of `os`"""
SLURM_PROGRAM = re.compile(
    r"(.*/)?(s(acct|acctmgr|alloc|attach|batch|cancel|control|diag|info|prio|queue|report|run|share|stat|trigger)"
    r"|slurm(ctld|d|dbd|stepd|restd))"
)


def modules() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix()


def starts_programs(tree: ast.AST) -> bool:
    """Whether a module imports what starts programs, by any name, or calls what starts them in `os`."""
    return any(map(_starts, ast.walk(tree)))


def _starts(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(STARTING_MODULES.fullmatch(each.name) for each in names)
        case ast.ImportFrom(module="os", names=names):
            return any(STARTING_FUNCTIONS.fullmatch(each.name) for each in names)
        case ast.ImportFrom(module=str(module), names=names):
            return bool(STARTING_MODULES.fullmatch(module)) or "ProcessPoolExecutor" in [each.name for each in names]
        case ast.Attribute(value=ast.Name(id="os"), attr=attr):
            return bool(STARTING_FUNCTIONS.fullmatch(attr))
        case ast.Attribute(attr="ProcessPoolExecutor"):
            return True
    return False


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "import subprocess as s",
        "def f():\n    from subprocess import run",
        "import os\nplatform.system()\nos.execvp('squeue', [])",
        "import os\nos.posix_spawnp('squeue', [], {})",
        "from os import system",
        "import multiprocessing.pool",
        "import asyncio",
        "from concurrent.futures import ProcessPoolExecutor",
        "from concurrent import futures\nfutures.ProcessPoolExecutor()",
    ],
)
def test_what_starts_programs_is_recognised(source: str) -> None:
    assert starts_programs(ast.parse(source))


@pytest.mark.parametrize(
    "source", ["import os\nos.getpid()\nplatform.system()", "from concurrent.futures import ThreadPoolExecutor"]
)
def test_what_starts_none_is_not_mistaken_for_it(source: str) -> None:
    assert not starts_programs(ast.parse(source))


def test_only_the_cluster_and_the_sandbox_start_slurms_programs() -> None:
    starters = {name for name in modules() if starts_programs(ast.parse((ROOT / name).read_text()))}
    assert {name for name in starters if not name.startswith(STARTERS)} == set(OTHER_STARTERS)


@pytest.mark.parametrize("name", OTHER_STARTERS)
def test_what_else_starts_programs_names_none_of_slurms(name: str) -> None:
    words = [node.value for node in ast.walk(ast.parse((ROOT / name).read_text())) if isinstance(node, ast.Constant)]
    assert [word for word in words if isinstance(word, str) and SLURM_PROGRAM.fullmatch(word)] == []
