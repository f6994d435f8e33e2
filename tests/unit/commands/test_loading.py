"""What a report loads: nothing that takes long and that it does without."""

import subprocess
import sys

import pytest

SLOW = ("pandas", "pydantic", "scipy", "sklearn", "sqlite_utils")
"""numpy is not among them, as the ledger's arrays are its."""


@pytest.mark.parametrize(
    ("command", "reports", "slow"),
    [
        *((command, "slurmplug.reports.service", SLOW) for command in ("acct", "prio", "queue")),
        ("usage", "slurmplug.ledger.usage_queries, slurmplug.reports.usage", SLOW),
        ("status", "slurmplug.reports.daemon_status", ("pandas", "pydantic", "sklearn", "sqlite_utils")),
        *((command, "slurmplug.endpoint.client", ("numpy", *SLOW)) for command in ("acct", "prio", "queue", "why")),
    ],
)
def test_a_report_loads_nothing_that_takes_long(command: str, reports: str, slow: tuple[str, ...]) -> None:
    code = (
        f"import sys, slurmplug.commands.{command}, {reports}; print([each for each in {slow} if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
