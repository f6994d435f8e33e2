"""What the sandbox parses of scontrol's output."""

import pytest

from slurmplug.sandbox.cluster import job_fields


@pytest.mark.parametrize(
    ("shown", "tres"),
    [
        ("   NodeList=n1\n   TRES=cpu=4,node=1,gres/gpu=4\n   Socks/Node=*", "cpu=4,node=1,gres/gpu=4"),
        ("   ReqTRES=cpu=2,node=1,gres/gpu=2\n   AllocTRES=(null)\n   Socks/Node=*", "cpu=2,node=1,gres/gpu=2"),
        ("   ReqTRES=cpu=2,node=1\n   AllocTRES=cpu=4,node=1,gres/gpu=4\n\n", "cpu=4,node=1,gres/gpu=4"),
    ],
    ids=["22.05", "24.11, pending", "24.11, running"],
)
def test_what_a_job_has_or_requests_is_parsed_in_every_release(shown: str, tres: str) -> None:
    assert job_fields(f"JobId=1 JobName=a\n{shown}\n\nJobId=2 JobName=b\n   TRES=cpu=9\n")["TRES"] == tres
