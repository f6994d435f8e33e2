"""The Debian package on a machine where systemd runs, from its first installation to its purge.

Each test goes on where the one before it ended.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.machine import Machine, booted
from tests.docker.site import docker
from tests.live.test_submit_plugin import site_script

DAEMON, RELEASE, TIMER = "slurmplugd.service", "slurmplug-release.service", "slurmplug-release.timer"
STATE, SPOOL, PLUGIN = "/var/lib/slurmplug", "/var/spool/slurmplug", Path("/etc/slurmplug/slurmplug.lua")
SLEEP = "#!/bin/sh\n#SBATCH --gres=gpu:{gpus} --output=/dev/null\n{lines}\nsleep infinity"
BID = "#SBATCH --time=60\n#PLUG --utility=50,0.5,12 --gpus=1..4"
SETTINGS = {
    "interval = 60.0": "interval = 2.0",
    'default = "observe"': 'default = "act"',
    'admit = "obs.*"': 'admit = "act"',
}
DROP_IN = "[Service]\nWatchdogSec=20\nRestartSec=1\n"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted() as one:
        yield one


@pytest.fixture(scope="module")
def jobs() -> dict[str, int]:
    """By name, what the tests before have submitted."""
    return {}


def restarted(machine: Machine, signal: str) -> None:
    """The daemon gets a signal, and its unit brings it up again."""
    before = int(machine.unit(DAEMON, "NRestarts"))
    machine.sh(f"kill -{signal} {machine.unit(DAEMON, 'MainPID')}")
    machine.wait(lambda: int(machine.unit(DAEMON, "NRestarts")) == before + 1, "a restart by the unit")
    machine.wait(lambda: machine.unit(DAEMON, "ActiveState") == "active", "the unit to be active again")
    assert machine.goes_on()


def refused(machine: Machine) -> bool:
    """Whether a mistake in a directive is, at submission."""
    script = "#!/bin/sh\n#PLUG --urgnecy=5\ntrue"
    result = machine.sh(f"cd && sbatch --hold --output=/dev/null <<'SCRIPT'\n{script}\nSCRIPT", user="ada", check=False)
    assert ("urgnecy" in result) != ("Submitted" in result), result
    return "urgnecy" in result


def held(machine: Machine, job: int) -> bool:
    return machine.job(job)["Reason"] in ("JobHeldUser", "JobHeldAdmin")


def test_installing_it_starts_nothing_and_brings_the_account_the_folders_and_completions(machine: Machine) -> None:
    result = machine.sh("apt-get install -y /root/slurmplug.deb")
    assert "systemctl enable --now slurmplugd" in result
    for unit, enabled in ((DAEMON, "disabled"), (RELEASE, "static"), (TIMER, "disabled")):
        assert machine.sh(f"systemctl is-enabled {unit}", check=False) == enabled
        assert machine.unit(unit, "ActiveState") == "inactive"
        assert machine.unit(unit, "ExecMainStartTimestampMonotonic") in ("0", "")  # nor was it ever
    assert machine.sh("getent passwd slurmplug").endswith(f":{STATE}:/usr/sbin/nologin")
    places = f"{STATE} {SPOOL} {SPOOL}/reports {SPOOL}/requests"
    modes = ["750", "755", "3773", "711"]
    assert machine.sh(f"stat -c '%U %G %a' {places}").splitlines() == [f"slurmplug slurmplug {mode}" for mode in modes]
    assert not machine.sh(f"ls -A {STATE}")
    completions = "/usr/share/bash-completion/completions/slurmplug"
    assert "slurmplug" in machine.sh(f"bash -c 'source {completions} && complete -p slurmplug'")
    machine.sh("test -s /usr/share/zsh/vendor-completions/_slurmplug")
    machine.sh("test -s /usr/share/fish/vendor_completions.d/slurmplug.fish")
    assert machine.sh("slurmplug --version", user="ada")


def test_systemd_finds_no_fault_with_the_units_and_little_exposed(machine: Machine) -> None:
    for unit in (DAEMON, RELEASE, TIMER):
        assert machine.sh(f"systemd-analyze verify --man=no --recursive-errors=no {unit} 2>&1") == ""
    for unit in (DAEMON, RELEASE):
        result = machine.sh(f"systemd-analyze --no-pager security {unit}")
        found = re.search(r"Overall exposure level for .*: ([0-9.]+) (\w+)", result)
        assert found
        assert float(found[1]) < 3.0, result
        assert found[2] == "OK"


def test_the_doctor_names_what_is_missing_and_its_fixes_work(machine: Machine) -> None:
    machine.sh(f"rmdir {SPOOL}/requests && chmod 700 {SPOOL}/reports && chown root {SPOOL}/reports")

    def wrong() -> dict[str, str]:
        report = json.loads(machine.sh("slurmplug doctor --json || true"))["findings"]
        return {each["about"]: each["mend"] for each in report if each["level"] == "wrong"}

    fixes = wrong()
    assert set(fixes) == {"rights", "spool/reports", "spool/requests"}
    assert "WRONG  rights" in machine.sh("slurmplug doctor", check=False)
    for fix in fixes.values():
        machine.sh(fix)
    assert wrong() == {}
    machine.sh("slurmplug doctor")


def test_the_daemon_under_its_unit_reaches_slurm_and_ranks_the_jobs(machine: Machine, jobs: dict[str, int]) -> None:
    for before, after in SETTINGS.items():
        machine.sh(f"sed -i 's/^{before}/{after}/' /etc/slurmplug/slurmplug.toml")
    machine.sh(f"install -D /dev/stdin /etc/systemd/system/{DAEMON}.d/quick.conf <<'UNIT'\n{DROP_IN}UNIT")
    machine.sh(f"systemctl daemon-reload && systemctl enable --now {DAEMON}")
    assert [machine.unit(DAEMON, what) for what in ("Type", "ActiveState", "StatusText")] == [
        "notify",
        "active",
        "policy mlfs",
    ]
    assert machine.goes_on()
    status = machine.status()
    assert (status["alive"], status["hindered"] or status["error"] or "") == (True, "")
    jobs["runs"] = machine.submit("cleo", SLEEP.format(gpus=4, lines=""))
    machine.wait_state(jobs["runs"], "RUNNING")
    for name, urgency in (("calm", 1), ("urgent", 9)):  # in the other order, Slurm's own would do
        jobs[name] = machine.submit("ada", SLEEP.format(gpus=4, lines=f"#PLUG --urgency={urgency}"))
    machine.wait(lambda: any(machine.site_factors().values()), "SiteFactors")
    factors = machine.site_factors()
    assert factors[jobs["urgent"]] > factors[jobs["calm"]]


def test_a_reload_has_the_daemon_read_its_configuration_and_hold_who_waits_for_admission(
    machine: Machine, jobs: dict[str, int], tmp_path: Path
) -> None:
    pid = machine.unit(DAEMON, "MainPID")
    machine.sh("sed -i 's/^policy = .*/policy = \"oasis\"/' /etc/slurmplug/slurmplug.toml")
    machine.sh(f"systemctl reload {DAEMON}")
    machine.wait(lambda: machine.unit(DAEMON, "StatusText") == "policy oasis", "the new configuration")
    machine.wait(lambda: machine.status()["policy"] == "oasis", "a cycle of the new policy")
    assert machine.unit(DAEMON, "MainPID") == pid
    script = site_script(tmp_path, PLUGIN)
    script.write_text(script.read_text().replace("slurmplug.check(", "slurmplug.hold("))
    docker("cp", str(script), f"{machine.container('controller')}:/etc/slurm/job_submit.lua")
    machine.sh("chmod 644 /etc/slurm/job_submit.lua && touch /etc/slurm/job_submit.lua")
    assert refused(machine)
    for name in ("bid", "other bid"):
        jobs[name] = machine.submit("bob", SLEEP.format(gpus=1, lines=BID))
        assert held(machine, jobs[name])
    wanted = {str(jobs["bid"]), str(jobs["other bid"])}
    machine.wait(lambda: set(machine.sh(f"cat {SPOOL}/waiting").split()) == wanted, "both to wait for admission")
    assert machine.goes_on()
    assert {machine.job(jobs[name])["Reason"] for name in ("bid", "other bid")} == {"JobHeldAdmin"}


def test_the_daemon_can_write_in_its_folders_only_and_has_no_rights(machine: Machine) -> None:
    pid = machine.unit(DAEMON, "MainPID")
    machine.sh("install -d -m 1777 /srv/open /home/open /opt/open")

    def writes(folder: str) -> str:
        """As the daemon's account: through the daemon's own view of the machine, and without."""
        values = [
            machine.sh(f"touch {root}{folder}/x 2>&1 && rm {root}{folder}/x", user="slurmplug", check=False)
            for root in ("", f"/proc/{pid}/root")
        ]
        assert values[0] == "", "it may be written where nothing is hardened"
        return values[1]

    for folder in (STATE, SPOOL, f"{SPOOL}/reports", f"{SPOOL}/requests"):
        assert writes(folder) == ""
    for folder in ("/srv/open", "/opt/open"):
        assert "Read-only file system" in writes(folder)
    assert writes("/home/open").endswith(("No such file or directory", "Permission denied"))
    machine.sh(f"touch /var/tmp/x && ls /proc/{pid}/root/var/tmp && ! ls /proc/{pid}/root/var/tmp/x", user="slurmplug")
    values = dict(line.split(":\t", 1) for line in machine.sh(f"cat /proc/{pid}/status").splitlines() if ":\t" in line)
    assert {values[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2")
    assert values["Uid"].split()[0] == machine.sh("id -u slurmplug")


def test_a_daemon_that_hangs_is_ended_by_the_watchdog_and_started_anew(machine: Machine) -> None:
    restarted(machine, "STOP")
    assert "Watchdog timeout" in machine.sh(f"journalctl --no-pager --unit={DAEMON}")


def test_a_daemon_that_is_killed_is_started_anew(machine: Machine) -> None:
    restarted(machine, "KILL")


def test_a_stop_ends_it_cleanly_and_jobs_go_on(machine: Machine, jobs: dict[str, int]) -> None:
    factors = machine.site_factors()
    machine.sh(f"systemctl stop {DAEMON}")
    assert [machine.unit(DAEMON, what) for what in ("ActiveState", "Result", "ExecMainStatus")] == [
        "inactive",
        "success",
        "0",
    ]
    assert "stopped; running jobs are not affected" in machine.sh(f"journalctl --no-pager --unit={DAEMON} -n 20")
    assert machine.job(jobs["runs"])["JobState"] == "RUNNING"
    assert any(factors.values())
    assert machine.site_factors() == factors


def test_the_timers_service_lets_go_who_waits_when_the_daemon_is_gone_for_long(
    machine: Machine, jobs: dict[str, int]
) -> None:
    machine.sh(f"systemctl enable --now {TIMER}")
    assert machine.unit(TIMER, "ActiveState") == "active"
    machine.sh(f"systemctl start {RELEASE}")
    assert held(machine, jobs["bid"])
    machine.sh(f"sed -i '/^{jobs['other bid']}$/d' {SPOOL}/waiting && touch -d '1 hour ago' {SPOOL}/waiting")
    machine.sh(f"systemctl start {RELEASE}")
    assert machine.unit(RELEASE, "Result") == "success"
    assert f"released job {jobs['bid']}," in machine.sh(f"journalctl --no-pager --unit={RELEASE}")
    assert [held(machine, jobs[name]) for name in ("bid", "other bid")] == [False, True]


def test_an_upgrade_restarts_the_daemon_that_runs_and_leaves_one_that_does_not(
    machine: Machine, jobs: dict[str, int]
) -> None:
    machine.sh(f"systemctl start {DAEMON}")
    assert machine.goes_on()
    cycles, pid = machine.cycles(), machine.unit(DAEMON, "MainPID")
    factors = machine.site_factors()
    machine.sh("apt-get install -y /root/next.deb")
    assert machine.sh("dpkg-query --show --showformat='${Version}' slurmplug").endswith("+next")
    assert machine.unit(DAEMON, "ActiveState") == "active"
    assert machine.unit(DAEMON, "MainPID") != pid
    assert machine.goes_on()
    assert machine.cycles() > cycles
    assert machine.site_factors() == factors
    assert held(machine, jobs["other bid"])
    machine.sh(f"systemctl stop {DAEMON} {TIMER}")
    machine.sh("apt-get install -y --reinstall /root/next.deb")
    assert [machine.unit(unit, "ActiveState") for unit in (DAEMON, RELEASE, TIMER)] == ["inactive"] * 3
    assert [machine.sh(f"systemctl is-enabled {unit}") for unit in (DAEMON, TIMER)] == ["enabled"] * 2


def test_removal_gives_everything_back_and_slurmctld_goes_on_without_it(machine: Machine, jobs: dict[str, int]) -> None:
    machine.sh(f"systemctl start {DAEMON} {TIMER}")
    assert machine.goes_on()
    assert any(machine.site_factors().values())
    machine.sh("apt-get remove -y slurmplug")
    assert not any(machine.site_factors().values())
    assert not held(machine, jobs["other bid"])
    assert not machine.sh("systemctl list-units --no-legend --state=active,activating,failed 'slurmplug*'")
    assert not machine.sh("pgrep -u slurmplug", check=False)
    assert machine.sh("ls -d /opt/slurmplug /usr/share/slurmplug 2>/dev/null", check=False) == ""
    machine.sh(f"test -e {STATE}/ledger.db")
    for restart in (False, True):  # slurmctld has the plugin in its memory at first
        if restart:
            machine.sh("systemctl restart slurmctld")
            machine.wait(lambda: "UP" in machine.sh("scontrol ping", check=False), "slurmctld")
            assert machine.job(jobs["runs"])["JobState"] == "RUNNING"
            assert not refused(machine)
        job = machine.submit("bob", SLEEP.format(gpus=1, lines=BID))
        assert not held(machine, job)
        machine.sh(f"scancel {job}")


def test_installed_again_it_goes_on_when_it_is_resumed(machine: Machine, jobs: dict[str, int]) -> None:
    machine.sh("apt-get install -y /root/slurmplug.deb")
    assert machine.unit(DAEMON, "ActiveState") == "inactive"
    machine.sh("touch /etc/slurm/job_submit.lua")
    assert refused(machine)
    machine.sh("slurmplug doctor")
    machine.sh("sed -i 's/^policy = .*/policy = \"mlfs\"/' /etc/slurmplug/slurmplug.toml")  # which ranks by urgency
    machine.sh(f"systemctl start {DAEMON}")
    assert machine.goes_on()
    assert machine.status()["paused"].startswith("the package was removed (")
    assert not any(machine.site_factors().values())
    machine.sh("slurmplug resume")
    machine.wait(lambda: any(machine.site_factors().values()), "SiteFactors again")
    assert machine.job(jobs["runs"])["JobState"] == "RUNNING"


def test_purge_takes_the_ledger_and_the_configuration_away(machine: Machine) -> None:
    machine.sh("apt-get purge -y slurmplug")
    assert not any(machine.site_factors().values())
    found = machine.sh(
        "find / -xdev -name '*slurmplug*' -not -path '/proc/*' -not -path '/root/*' -not -path '/usr/local/*'"
    )
    assert set(found.splitlines()) == {SPOOL, f"/etc/systemd/system/{DAEMON}.d"}
    assert not machine.sh("systemctl list-unit-files --no-legend 'slurmplug*'", check=False)
    machine.sh("systemctl restart slurmctld")
    machine.wait(lambda: "UP" in machine.sh("scontrol ping", check=False), "slurmctld")
    assert not refused(machine)
