"""The template of a sweep whose trials share a file: what a process leaves that is killed while it writes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

TEMPLATE = Path(__file__).parents[3] / "sbatch_templates" / "optuna_sweep.py"
KILLED_AT_WRITING = "import os, signal\nos.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"


def test_the_lock_of_a_process_that_was_killed_names_a_file_that_is_there(tmp_path: Path) -> None:
    """Optuna takes such a lock away after 30 s, unless it names nothing: then all others wait for good."""
    folder = tmp_path / "optuna_sweep-7"
    folder.mkdir()
    storage = JournalStorage(JournalFileBackend(str(folder / "study.log")))
    optuna.create_study(study_name="7", storage=storage).ask()
    (tmp_path / "sitecustomize.py").write_text(KILLED_AT_WRITING)
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\n")
    squeue.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}",
    }
    done = subprocess.run(
        [sys.executable, TEMPLATE, "7"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    lock = folder / "study.log.lock"
    assert lock.is_symlink()
    assert lock.exists()
