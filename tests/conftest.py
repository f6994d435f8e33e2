"""What holds for every test.

Property tests draw the same examples for the same code, so that a commit that passed passes again;
`pytest tests/property --hypothesis-profile=search` draws others, and more.
"""

import os
import signal

import hypothesis
import pytest

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
