"""The Ansible role on a machine where systemd and Slurm run, from nothing to observe mode.

Each test goes on where the one before it ended. Ansible is Debian's, on that machine itself.
"""

import re
from collections.abc import Iterator

import pytest

from tests.docker.machine import Machine, booted
from tests.docker.site import docker

PLAY = "ansible-playbook --inventory localhost, --connection local /root/ansible/slurmplug.yml -e slurmplug_package={}"
DAEMON = "slurmplugd.service"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted() as one:
        one.sh("apt-get update -qq && apt-get install -y -qq --no-install-recommends ansible-core python3-apt")
        docker("cp", "ansible", f"{one.container('controller')}:/root/ansible")
        yield one


def play(machine: Machine, *settings: str, package: str = "/root/slurmplug.deb") -> str:
    """What ansible-playbook prints, whether it fails or not."""
    return machine.sh(" ".join([PLAY.format(package), *(f"-e {each}" for each in settings)]), check=False)


def counts(printed: str) -> dict[str, int]:
    """The last line's: ok, changed, failed, ..."""
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", printed.splitlines()[-1])}


def modes(machine: Machine) -> str:
    return machine.sh(f"journalctl --no-pager --unit={DAEMON} | grep -o 'modes: .*' | tail -1")


def test_without_a_package_it_says_what_to_name(machine: Machine) -> None:
    assert "-e slurmplug_package=FILE.deb or FILE.rpm" in play(machine, package="''")


def test_it_goes_from_nothing_to_observe_mode(machine: Machine) -> None:
    printed = play(machine)
    assert counts(printed)["failed"] == 0, printed
    assert counts(printed)["changed"] > 0
    assert (machine.unit(DAEMON, "ActiveState"), machine.sh(f"systemctl is-enabled {DAEMON}")) == ("active", "enabled")
    assert machine.sh("sacctmgr -nP show user slurmplug format=AdminLevel") == "Operator"
    assert modes(machine).startswith("modes: default observe")
    machine.sh("slurmplug doctor")
    job = machine.submit("ada", "#!/bin/sh\n#PLUG --urgency=9\nsleep infinity", "--output=/dev/null")
    assert machine.status()["alive"]
    assert machine.job(job)["JobState"] in ("PENDING", "RUNNING")


def test_once_more_it_changes_nothing(machine: Machine) -> None:
    pid = machine.unit(DAEMON, "MainPID")
    printed = play(machine)
    assert {name: counts(printed)[name] for name in ("changed", "failed")} == {"changed": 0, "failed": 0}, printed
    assert machine.unit(DAEMON, "MainPID") == pid


def test_a_configuration_with_a_mistake_is_refused_and_the_old_one_stays(machine: Machine) -> None:
    machine.sh("sed 's/^interval = .*/intervall = 30.0/' /etc/slurmplug/slurmplug.toml >/root/site.toml")
    before = machine.sh("sha256sum /etc/slurmplug/slurmplug.toml")
    printed = play(machine, "slurmplug_config=/root/site.toml")
    assert "intervall" in printed
    assert counts(printed)["failed"] == 1
    assert machine.sh("sha256sum /etc/slurmplug/slurmplug.toml") == before
    assert machine.unit(DAEMON, "ActiveState") == "active"


def test_a_configuration_of_the_site_comes_into_force(machine: Machine) -> None:
    pid = machine.unit(DAEMON, "MainPID")
    machine.sh('sed \'s/^default = "observe"/default = "advise"/\' /etc/slurmplug/slurmplug.toml >/root/site.toml')
    printed = play(machine, "slurmplug_config=/root/site.toml")
    assert counts(printed)["failed"] == 0, printed
    assert machine.unit(DAEMON, "MainPID") != pid
    machine.wait(lambda: modes(machine).startswith("modes: default advise"), "the daemon to advise")
