"""docker/prepare installs what is missing, and no more; its programs are stand-ins that note how they were called."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("compose", "installed"), [("exit 1", ["docker-compose"]), ("exit 0", [])], ids=["without compose", "with compose"]
)
def test_compose_is_installed_where_an_engine_runs_without_it(
    tmp_path: Path, compose: str, installed: list[str]
) -> None:
    stubs = {
        "docker": f'case "$1" in compose) {compose};; *) exit 0;; esac',
        "apt-get": f'[ "$1" = update ] || echo "$@" >>{tmp_path}/calls',
        "id": "echo 0",
    }
    for name, body in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "sh", "env", "dirname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    subprocess.run([ROOT / "docker/prepare", "bookworm"], env={"PATH": str(tmp_path)}, check=True, timeout=60)
    calls = tmp_path / "calls"
    words = calls.read_text().split() if calls.exists() else []
    packages = [word for word in words if not word.startswith(("-", "DPkg", "install"))]
    assert packages == installed
