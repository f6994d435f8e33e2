"""What packages install: the unit, the account, the spool, and the word to systemd."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slurmplug.daemon.sd_notify import ServiceNotifier

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site_config"


def test_the_packages_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    report = tomllib.loads((ROOT / "slurmplug_report/pyproject.toml").read_text())["project"]
    assert report["version"] == version
    assert f"{report['name']}=={version}" in project["dependencies"]
    assert (ROOT / "debian/changelog").read_text().startswith(f"slurmplug ({version}) ")
    assert f"\nVersion: {version}\n" in (ROOT / "packaging/slurmplug.spec").read_text()


def test_every_place_that_states_the_licence_states_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (statement,) = tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]
    report = tomllib.loads((ROOT / "slurmplug_report/pyproject.toml").read_text())["project"]
    assert report["license"]["text"] == project["license"]
    assert project["license"] == statement["SPDX-License-Identifier"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    assert f"License: {project['license']}\n" in (ROOT / "debian/copyright").read_text()
    for copy in ("LICENSES/Apache-2.0.txt", "slurmplug_report/LICENSE"):
        assert (ROOT / copy).read_text() == (ROOT / "LICENSE").read_text()


def packages() -> set[str]:
    return {file.parent.name for file in ROOT.glob("*/__init__.py") if not file.parent.name.startswith("tests")}


@pytest.mark.parametrize("image", ["Dockerfile", "Dockerfile.package"])
def test_an_image_has_every_package(image: str) -> None:
    copied = set(re.findall(r"^COPY (\w+) ", (ROOT / "docker" / image).read_text(), re.MULTILINE))
    allowed = set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert packages() == {"policies", "predictors", "slurmplug", "slurmplug_report"}
    assert packages() <= copied & allowed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(("name", "command"), [("slurmplugd", "daemon"), ("slurmplug-web", "web")])
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path, name: str, command: str) -> None:
    unit = tmp_path / f"{name}.service"
    text = (SITE / f"{name}.service").read_text()
    assert f"ExecStart=/usr/bin/slurmplug {command}\n" in text
    unit.write_text(text.replace("/usr/bin/slurmplug", sys.executable))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in result.stderr.splitlines() if name in line]
    assert not complaints, result.stderr


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd is not installed")
def test_the_account_and_the_spool_are_made_as_the_doctor_wants_them(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for words in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
        file = SITE / f"slurmplug.{words[0].removeprefix('systemd-')}"
        result = subprocess.run([*words, f"--root={tmp_path}", str(file)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
    account = next(row for row in (tmp_path / "etc/passwd").read_text().splitlines() if row.startswith("slurmplug:"))
    assert account.endswith(":/var/lib/slurmplug:/usr/sbin/nologin")
    spool = tmp_path / "var/spool/slurmplug"
    assert [(spool / name).stat().st_mode & 0o7777 for name in ("reports", "requests")] == [0o3773, 0o711]
    assert (spool / "reports").stat().st_uid == int(account.split(":")[2])


def test_no_maintainer_script_fails_where_systemd_or_slurm_does_not_run() -> None:
    removal = ROOT / "packaging/before-removal"
    for script in (*(ROOT / "debian").glob("slurmplug.p*"), removal):
        assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    assert re.search(r"slurmplug reset .*\|\|", removal.read_text())
    for script in (ROOT / "debian/slurmplug.prerm", ROOT / "packaging/slurmplug.spec"):
        assert re.search(r"/usr/lib/slurmplug/before-removal \|\|", script.read_text())


@pytest.mark.parametrize(("ledger", "resets"), [("there.db", True), ("none.db", False)])
def test_removal_gives_back_what_the_ledger_knows_wherever_it_is_configured_to_be(
    ledger: str, resets: bool, tmp_path: Path
) -> None:
    (tmp_path / "there.db").touch()
    (tmp_path / "slurmplug.toml").write_text(f'ledger.path = "{tmp_path}/{ledger}"\n')
    own = f"{sys.executable} -c 'from slurmplug.commands import main; main()' \"$@\" --config {tmp_path}/slurmplug.toml"
    programs = {
        "slurmplug": f'[ "$1" != show-config ] || exec {own}\necho "$@" >>{tmp_path}/said',
        "runuser": 'shift 3; exec "$@"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "packaging/before-removal").read_text()
    for path in ("/opt/slurmplug/bin", "/etc/slurmplug", "/var/lib/slurmplug"):
        script = script.replace(path, str(tmp_path))
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], env=env, check=True)
    said = tmp_path / "said"
    assert (said.exists() and said.read_text().startswith("reset ")) is resets


def test_the_manager_is_told_what_it_asked_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        notifier = ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"})
        notifier.ready("policy mlfs")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=policy mlfs"
        notifier.ping_watchdog()
        assert systemd.recv(1000) == b"WATCHDOG=1"
        notifier.reloading()
        assert systemd.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert notifier.watchdog_interval == 10.0


def test_without_a_manager_nothing_is_told_and_nothing_fails(tmp_path: Path) -> None:
    silent = ServiceNotifier({})
    silent.ready("")
    assert silent.watchdog_interval is None
    ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ping_watchdog()
    assert ServiceNotifier({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}).watchdog_interval is None
