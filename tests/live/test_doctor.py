"""`slurmplug doctor` on a real Slurm, and a daemon that only observes what a failed check blocks."""

import json
from collections.abc import Iterator

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside, site_factors


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def findings(daemon: DaemonProcess) -> dict[str, dict[str, str]]:
    result = daemon.command("doctor", "--json")
    return {each["about"]: each for each in json.loads(result.stdout)["findings"]}


def test_the_doctor_finds_nothing_wrong_with_a_sandbox(cluster: Sandbox, daemon: DaemonProcess) -> None:
    daemon.configure()
    result = daemon.command("doctor")
    assert result.returncode == 0, result.stdout
    seen = findings(daemon)
    assert seen["rights"]["says"] == f"{cluster.operator} is Operator"
    assert {name for name, each in seen.items() if each["level"] == "note"} == {"job_submit"}


def test_a_daemon_whose_requests_folder_is_not_its_own_stops_nothing_and_says_why(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    requests = cluster.spool / "requests"
    script = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\n{}\nsleep 600\n"
    cluster.wait_job(cluster.sbatch(cluster.researchers[2], script.format("")), "RUNNING")
    low, high = (
        cluster.sbatch(cluster.researchers[0], script.format(f"#PLUG --urgency={urgency}")) for urgency in (2, 9)
    )
    requests.chmod(0o777)
    try:
        daemon.start()
        daemon.pass_cycles()
        modes = json.loads(daemon.query("SELECT modes FROM cycles ORDER BY id DESC LIMIT 1")[0]["modes"])
        assert (modes["default"], modes["stop"]) == ("act", "observe")
        factors = site_factors(cluster)
        assert factors[high] > factors[low]
        assert b"stop: only observing: spool/requests" in daemon.log.read_bytes()
        assert "blocked by a failed check: spool/requests" in daemon.command("status").stdout
        assert findings(daemon)["spool/requests"]["level"] == "wrong"
    finally:
        requests.chmod(0o711)
