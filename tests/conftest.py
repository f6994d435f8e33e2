"""What holds for every test.

Property tests draw the same examples for the same code, so that a commit that passed passes again;
`pytest tests/property --hypothesis-profile=search` draws others, and more.
"""

import os
import signal

import hypothesis
import pytest

MOST_WORKERS = 8
"""Each has a Slurm cluster of its own while live tests run, of some 300 MB."""

hypothesis.settings.register_profile("patient", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1_000)
hypothesis.settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Children start as they would at a terminal.

    They take signals also where a background job or nohup has them ignored, and buffer their output also in a container
    whose image sets PYTHONUNBUFFERED.
    """
    os.environ.pop("PYTHONUNBUFFERED", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: one more than there are processors, for a live test waits more than it computes."""
    return min((os.cpu_count() or 1) + 1, MOST_WORKERS)
