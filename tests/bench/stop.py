"""The seconds from SIGTERM to the daemon's exit, wherever a cycle is: `python -m tests.bench.stop`.

What squeue and sinfo would answer is made up, and takes no time, so that SIGTERM comes as predictors are loaded, in the
stages that compute, and in those that write to the ledger. Each comes at a time of its own, among the first cycles.
"""

import argparse
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from slurmplug.cluster import api_client
from slurmplug.daemon import daemon
from tests.bench.made_up_slurm import MadeUpClient

SETTINGS = """
interval = 1.0
mode.default = "act"
spool.path = "{0}/spool"
ledger.path = "{0}/ledger.db"
"""


def serve(folder: Path, jobs: int) -> None:
    """The daemon, which says when it begins."""
    client = MadeUpClient(jobs)
    with mock.patch.object(api_client, "make_client", return_value=client):
        print("begins", flush=True)
        daemon.serve(folder / "slurmplug.toml")


def ended(folder: Path, jobs: int, after: float) -> float:
    """The seconds that it took to end when SIGTERM came so many seconds after it began."""
    (folder / "slurmplug.toml").write_text(SETTINGS.format(folder))
    for name in ("reports", "requests"):
        (folder / "spool" / name).mkdir(parents=True)
    command = [sys.executable, "-m", "tests.bench.stop", "--jobs", str(jobs), "--serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        select.select([process.stdout], [], [])
        time.sleep(after)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status = process.wait()
    if status:
        raise SystemExit(f"the daemon ended with {status}")
    return time.monotonic() - began


def main() -> None:
    """Print the median and the longest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=12, help="of SIGTERM")
    parser.add_argument("--within", type=float, default=60.0, help="seconds in which they come")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.jobs)
        return
    draw, found = random.Random(options.seed), []
    for _ in range(options.times):
        after = draw.uniform(0.0, options.within)
        with tempfile.TemporaryDirectory() as folder:
            found.append(ended(Path(folder), options.jobs, after))
        print(f"SIGTERM after {after:4.1f} s: ended in {found[-1]:.2f} s", flush=True)
    print(f"{options.jobs} jobs: median {statistics.median(found):.2f} s, longest {max(found):.2f} s")


if __name__ == "__main__":
    main()
