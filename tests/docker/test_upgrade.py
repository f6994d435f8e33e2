"""From the package of 0.1.0 to this one's: a ledger, open operations, a configuration and a site's policy go on.

Both packages are built, 0.1.0 from its commit, and unpacked one beside the other; their daemons run on the same files,
beside a real Slurm. It needs root, Slurm, Debian's tools for packages, PyPI, and the repository's history.
"""

import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slurmplug.ledger.schema import MIGRATIONS
from slurmplug.sandbox import Sandbox
from tests.docker.site import ROOT
from tests.live.daemon_process import TRAIN, DaemonProcess

RELEASE, COMMIT = "0.1.0", "0d56d77"
OF_RELEASE = ROOT / "tests" / "data" / f"release-{RELEASE}"
RUN = "from slurmplug.commands import main; main()"


def build(commit: str, into: Path) -> Path:
    """The Debian package of a commit."""
    if missing := [name for name in ("git", "dpkg-buildpackage", "dh") if shutil.which(name) is None]:
        pytest.skip(f"no packages can be built here: {', '.join(missing)} is missing")
    source = into / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the repository here does not have {commit}")
    subprocess.run(["tar", "x"], cwd=source, input=archive.stdout, check=True)
    command = ["dpkg-buildpackage", "--build=binary", "--unsigned-source", "--unsigned-changes"]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    (package,) = into.glob("slurmplug_*.deb")
    return package


def version(package: Path) -> str:
    return subprocess.check_output(["dpkg-deb", "--field", str(package), "Version"], text=True).strip()


class Packaged(DaemonProcess):
    """The daemon of a package that is unpacked in a folder, with the whole configuration of 0.1.0."""

    def __init__(self, cluster: Sandbox, folder: Path, package: Path) -> None:
        super().__init__(cluster, folder)
        self.root = folder / version(package)
        subprocess.run(["dpkg-deb", "--extract", str(package), str(self.root)], check=True)
        self.python = self.root / "opt/slurmplug/bin/python"
        self.program = (str(self.python), "-I", "-c", RUN, "daemon", "--config")

    def configure(self, settings: str = "", policy: str = "mlfs") -> None:
        """The configuration that the release came with, on this cluster; `settings`: the seconds for a stop."""
        conf = self.cluster.env(self.cluster.operator)["SLURM_CONF"]
        text = (OF_RELEASE / "slurmplug.toml").read_text()
        for before, after in (
            ('policy = "mlfs"', f'policy = "{policy}"'),
            ("interval = 60.0", "interval = 1.0"),
            ('default = "observe"', 'default = "act"'),
            ("[slurm]", f'[slurm]\nconf = "{conf}"'),
            ("/var/spool/slurmplug", str(self.cluster.spool)),
            ("/var/lib/slurmplug/ledger.db", str(self.ledger_path)),
            ("grace = 300.0", f"grace = {settings or 300.0}"),
        ):
            assert before in text
            text = text.replace(before, after, 1)
        self.config.write_text(text)

    def query(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """Of a ledger of any release."""
        with closing(sqlite3.connect(self.ledger_path)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, parameters)]

    def site_factors(self) -> dict[int, float]:
        rows = self.query("SELECT job_id, label FROM jobs WHERE ended = 0 AND label != 0")
        return {row["job_id"]: row["label"] for row in rows}


@pytest.fixture
def cluster() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where other users can read what is unpacked."""
    with tempfile.TemporaryDirectory(prefix="slurmplug-upgrade-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def packages(tmp_path: Path) -> tuple[Path, Path]:
    return build(COMMIT, tmp_path / "old"), build("HEAD", tmp_path / "new")


@pytest.fixture
def policy(folder: Path) -> str:
    """The policy that the documentation of 0.1.0 had as an example, of the site's own."""
    shutil.copy(OF_RELEASE / "ours.py.txt", folder / "ours.py")
    return f"{folder}/ours.py:EarliestDeadline"


def test_what_0_1_0_left_is_opened_and_carried_on(
    packages: tuple[Path, Path], cluster: Sandbox, folder: Path, policy: str
) -> None:
    shutil.chown(folder, cluster.operator)
    old, new = (Packaged(cluster, folder, package) for package in packages)
    assert version(packages[0]) == RELEASE != version(packages[1])
    target = "#PLUG --target=accuracy>=0.8 --stop=target --max-iterations=100000"
    train = TRAIN.format(lines=target, gpus=4, iterations=100_000, seconds=0.2, obey=False, python=old.python)
    old.start(settings="120.0")
    stopped = cluster.sbatch("irc", train)
    cluster.wait(lambda: old.operation(stopped).get("step") == "ask", 60, "a stop that the job is asked for")
    operation = old.operation(stopped)
    assert old.signal(signal.SIGTERM) == 0
    old.start(settings="120.0", policy=policy)
    wait = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\n#PLUG --deadline={}h\nsleep infinity"
    waiting = [cluster.sbatch("news", wait.format(hours)) for hours in (9, 2, 5)]
    cluster.wait(old.site_factors, 60, "SiteFactors of the site's policy")
    old.pass_cycles(2)
    factors, cycles = old.site_factors(), old.cycles()
    assert old.signal(signal.SIGTERM) == 0
    schema = old.query("PRAGMA user_version")[0]["user_version"]

    new.start(settings="120.0", policy=policy)
    assert new.query("PRAGMA user_version")[0]["user_version"] == len(MIGRATIONS) > schema
    assert (folder / f"ledger.db.version-{schema}").exists()
    new.pass_cycles(2)
    assert new.cycles() > cycles
    assert {job: new.site_factors().get(job) for job in waiting} == {job: factors.get(job) for job in waiting}
    assert new.query("SELECT policy, error FROM cycles ORDER BY id DESC LIMIT 1") == [
        {"policy": "earliest-deadline", "error": ""}
    ]
    cluster.wait(lambda: new.operation(stopped)["step"] == "ended", 240, "the end of the stop")
    ended = new.operation(stopped)
    assert (ended["id"], ended["rule"], ended["outcome"]) == (operation["id"], "target", "cancelled")
    why = [str(new.python), "-I", "-c", RUN, "why", str(stopped), "--ledger", str(new.ledger_path)]
    assert "target" in cluster.run(cluster.operator, why).stdout
    assert new.signal(signal.SIGTERM) == 0
