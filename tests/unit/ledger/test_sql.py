"""Only the ledger's folder knows SQL and SQLite."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import slurmplug

ROOT = Path(slurmplug.__file__).parent
SQL = re.compile(r"\b(SELECT\s.+\sFROM|INSERT\s+(OR \w+ )?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|PRAGMA)\b", re.DOTALL)


def elsewhere() -> Iterator[tuple[str, ast.AST]]:
    """The syntax of every other module."""
    for path in sorted(ROOT.rglob("*.py")):
        if ROOT / "ledger" not in path.parents:
            for node in ast.walk(ast.parse(path.read_text())):
                yield str(path.relative_to(ROOT)), node


def test_no_other_module_has_a_statement_or_queries_the_ledger() -> None:
    statements = [
        (path, node.lineno)
        for path, node in elsewhere()
        if (isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "executemany")
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("ledger.query", ".db.execute")))
    ]
    assert statements == []


def test_no_other_module_imports_sqlite() -> None:
    imports = [
        path
        for path, node in elsewhere()
        if isinstance(node, ast.Import | ast.ImportFrom) and "sqlite3" in ast.unparse(node)
    ]
    assert imports == []
