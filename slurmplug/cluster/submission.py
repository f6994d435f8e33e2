"""Handing a batch script to sbatch, as who asks would do it."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from slurmplug.errors import ReadFailed, advice


def become_sbatch(conf: Path | None, folder: Path | None, arguments: Sequence[str]) -> NoReturn:
    """Let sbatch take this process' place: its input, output, signals and exit status are those of sbatch.

    conf: the slurm.conf; None for the one in the environment, or Slurm's default. folder: where sbatch is; None to
    search PATH.

    Raises:
        ReadFailed: it cannot be run
    """
    program = str(folder / "sbatch") if folder else "sbatch"
    environment = {**os.environ, **({"SLURM_CONF": str(conf)} if conf else {})}
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would sbatch
    try:
        os.execvpe(program, [program, *arguments], environment)
    except OSError as error:
        what_to_do = advice(error, "; set slurm.bin to its folder")
        raise ReadFailed(f"sbatch cannot be run: {error.strerror}{what_to_do}") from error
