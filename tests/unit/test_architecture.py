"""The rules of the packages in docs/architecture.md: the contracts on imports, and what no contract can say."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurmplug

ROOT = Path(slurmplug.__file__).parents[1]
PACKAGES = ("slurmplug", "slurmplug_report", "policies", "predictors")

STARTERS = ("slurmplug/cluster/", "slurmplug/sandbox/")
"""Only these folders start Slurm's programs."""
OTHER_STARTERS = (
    "slurmplug/endpoint/munge.py",
    "slurmplug_report/supervise.py",
    "slurmplug/processes/child.py",
)
"""These start programs that are not Slurm's: munge and unmunge; the command line that a user gives; Python itself."""
STARTING_MODULES = re.compile(r"(_?posixsubprocess|subprocess|pty|asyncio|multiprocessing)(\..*)?")
STARTING_FUNCTIONS = re.compile(r"(system|popen|fork(pty)?|exec[vl]p?e?|(posix_)?spawn[vl]?p?e?)")
"""of `os`"""
SLURM_PROGRAM = re.compile(
    r"(.*/)?(s(acct|acctmgr|alloc|attach|batch|cancel|control|diag|info|prio|queue|report|run|share|stat|trigger)"
    r"|slurm(ctld|d|dbd|stepd|restd))"
)


WAITS_WITHOUT_LIMIT = {"join", "wait", "shutdown"}
"""Methods of threads, pools, processes and events; without arguments they wait for any time."""


FOLDER = ROOT / "slurmplug"
SENTENCE = re.compile(r"[A-Z][a-z']* .*\.", re.DOTALL)
MAKES_SENTENCES = {"reports", "commands"}
"""`commands` for their --help."""


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


def texts(module: Path) -> Iterator[str]:
    """The string literals of a module that are no docstrings; of an f-string, {} for each value."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def sentences(module: Path) -> list[str]:
    return [text for text in map(str.strip, texts(module)) if SENTENCE.fullmatch(text) and len(text.split()) >= 4]


def test_the_contracts_on_imports_hold() -> None:
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(linter, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_only_reports_make_sentences() -> None:
    grammar = FOLDER / "directives" / "grammar.py"  # the help of each directive
    others = [
        module
        for module in FOLDER.rglob("*.py")
        if module.relative_to(FOLDER).parts[0] not in MAKES_SENTENCES and module != grammar
    ]
    assert {module.relative_to(FOLDER).as_posix(): found for module in others if (found := sentences(module))} == {}


def test_that_test_sees_a_sentence(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A docstring is no message to users."""\nx = f"It waits for job {1} to end."\ny = "Its rank is 5."\n'
    )
    assert sentences(module) == ["It waits for job {} to end.", "Its rank is 5."]


def test_few_packages() -> None:
    assert len([entry for entry in FOLDER.iterdir() if entry.name != "__pycache__"]) <= 25


@pytest.mark.parametrize("package", ["slurmplug", "policies", "predictors", "slurmplug_report"])
def test_every_package_says_what_it_is_for(package: str) -> None:
    for init in (ROOT / package).rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), f"{init} has no docstring"


@pytest.mark.parametrize("package", ["daemon", "processes"])
def test_nothing_that_the_daemon_does_itself_waits_without_a_limit(package: str) -> None:
    """Else SIGTERM waits with it. What may hang is called in another process, with a number of seconds."""
    found = [
        f"{path.name}:{node.lineno} {node.func.attr}"
        for path in (FOLDER / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in WAITS_WITHOUT_LIMIT and not node.args and not node.keywords
    ]
    pools = [
        path.name
        for path in (FOLDER / package).rglob("*.py")
        if re.search(r"\b(Thread|Process)PoolExecutor\(|import multiprocessing", path.read_text())
    ]
    assert found + pools == []
