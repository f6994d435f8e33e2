"""Templates as a user copies them into a folder and submits them from there."""

import re
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from slurmplug.sandbox import Sandbox

TEMPLATES = Path(__file__).parents[2] / "sbatch_templates"


class Copies:
    """Templates that a user has copied into a folder."""

    def __init__(self, cluster: Sandbox, name: str) -> None:
        self._cluster, self._user = cluster, cluster.researchers[0]
        made = cluster.run(self._user, ["mktemp", "-d", f"{name}-XXXXXX"]).stdout.strip()
        self.folder = cluster.home(self._user) / made
        for path in TEMPLATES.glob(f"{name}*"):
            shutil.copy(path, self.folder)

    def run(self, command: str, user: str = "", **env: str) -> str:
        """What a shell prints for a command in that folder, this Python first in PATH."""
        search_path = f"{sysconfig.get_path('scripts')}:{self._cluster.env(self._user)['PATH']}"
        env = {"PATH": search_path, "OMP_NUM_THREADS": "1", **env}
        return self._cluster.run(user or self._user, ["sh", "-c", f"cd {self.folder} && {command}"], env=env).stdout

    def change(self, changes: Mapping[str, str]) -> None:
        """Replace patterns in the files, as a user edits them."""
        for path in self.folder.iterdir():
            text = path.read_text()
            for pattern, new in changes.items():
                text = re.sub(pattern, new, text)
            path.write_text(text)

    def begun_at(self, output: str) -> list[int]:
        """The first epoch of each run, as a job's output says."""
        [path] = self.folder.glob(output)
        return [int(epoch) for epoch in re.findall(r"training from epoch (\d+)$", path.read_text(), re.MULTILINE)]

    def study(self, array: str) -> optuna.Study:
        """The study that the elements of an array share."""
        [log] = self.folder.glob("*/study.log")
        return optuna.load_study(study_name=array, storage=JournalStorage(JournalFileBackend(str(log))))

    def trials(self, outputs: str) -> list[tuple[str, str]]:
        """The trials of a study that were begun or continued, and the first epoch of each, as jobs' outputs say."""
        found = "".join(path.read_text() for path in sorted(self.folder.glob(outputs)))
        return sorted(re.findall(r"^trial (\d+), .* training from epoch (\d+)$", found, re.MULTILINE))
