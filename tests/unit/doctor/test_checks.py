"""What the doctor finds in the facts of a site, and how the command tells it."""

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from slurmplug.cluster import pyslurm_process
from slurmplug.cluster.pyslurm_process import Proof
from slurmplug.cluster.site_client import parse_federation_siblings
from slurmplug.config.schema import Config, Modes
from slurmplug.doctor import facts as doctor_facts
from slurmplug.doctor.checks import ALL_ACTIONS, Finding, blocked_actions, restrict_modes, run_checks
from slurmplug.doctor.values import Facts, PathStatus
from tests.ledgers import run

SETTINGS = {
    "SLURM_VERSION": "24.11.5",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "PriorityWeightTRES": "(null)",
    "SlurmUser": "slurm(64030)",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobSubmitPlugins": "lua",
    "SlurmctldParameters": "(null)",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "bf_interval=30,bf_continue",
    "JobRequeue": "1",
    "PreemptMode": "OFF",
}
GIB = 1 << 30


def folder(path: str, mode: int = 0o755, kind: str = "nfs4", **more: Any) -> PathStatus:
    given = {"owner": 900, "group": 900, "readable": True, "writable": True, "file_system": kind, "free": 9 * GIB}
    return PathStatus(path, mode=mode, **{**given, **more})


MAILING = Config.from_table({"notifications": {"mail": "asked"}})
HEALTHY = Facts(
    config=Config(),
    user="slurmplug",
    uid=900,
    gid=900,
    host="ctl",
    settings=SETTINGS,
    clock_offset=0.0,
    admin_level="Operator",
    other_nodes=8,
    spool=folder("/spool"),
    reports=folder("/spool/reports", 0o3773),
    requests=folder("/spool/requests", 0o711),
    ledger=folder("/lib", 0o750, kind="ext4"),
)


def site(**settings: str) -> Facts:
    return replace(HEALTHY, settings={**SETTINGS, **settings})


def found(facts: Facts, check: str) -> Finding:
    return next(each for each in run_checks(facts) if each.check == check)


def test_a_healthy_site_has_nothing_to_fix() -> None:
    findings = run_checks(HEALTHY)
    assert {each.level for each in findings} == {"ok"}
    assert not any(each.fix or each.blocks for each in findings)


@pytest.mark.parametrize(
    ("proof", "level", "message"),
    [
        (Proof("24.11.0"), "ok", "pyslurm 24.11.0 writes priorities"),
        (
            Proof("25.11.2", "its release 25.11.2 is not for Slurm 24.11.5", lasting=True),
            "note",
            "not for Slurm 24.11.5",
        ),
        (
            Proof("", "it cannot be imported: No module named 'pyslurm'", lasting=True),
            "note",
            "No module named 'pyslurm'",
        ),
    ],
)
def test_a_pyslurm_that_does_not_work_is_named_with_what_to_install(proof: Proof, level: str, message: str) -> None:
    finding = found(replace(HEALTHY, pyslurm=proof), "pyslurm")
    assert (finding.level, finding.blocks) == (level, frozenset())
    assert message in finding.message
    assert ("pyslurm==24.11.*" in finding.fix) == (level == "note")


def test_pyslurm_is_tried_only_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyslurm_process, "trial", lambda conf, release: Proof(release))
    chosen = Config.from_table({"slurm": {"client": "pyslurm"}})
    assert doctor_facts.with_pyslurm(HEALTHY).pyslurm is None
    assert doctor_facts.with_pyslurm(replace(HEALTHY, config=chosen)).pyslurm == Proof("24.11.5")
    no_answer = replace(HEALTHY, config=chosen, read_errors={"Slurm": "no answer"})
    assert doctor_facts.with_pyslurm(no_answer).pyslurm is None


BY_PRIORITY = frozenset({"rank", "resize", "migrate"})


@pytest.mark.parametrize(
    ("facts", "check", "level", "fix", "blocks"),
    [
        (site(SLURM_VERSION="21.08.8"), "version", "wrong", "upgrade Slurm", ALL_ACTIONS),
        (site(SLURM_VERSION="27.05.0"), "version", "note", "observe first", frozenset()),
        (site(SLURM_VERSION=""), "version", "note", "scontrol version", frozenset()),
        (site(PriorityType="priority/basic"), "priority", "wrong", "priority/multifactor", BY_PRIORITY),
        (
            replace(HEALTHY, siblings=("east", "west")),
            "federation", "wrong", "systemctl reload slurmplugd", BY_PRIORITY | {"preempt", "admit"},
        ),
        (site(PriorityWeightAge="0"), "priority", "note", "PriorityWeightFairShare=1000", frozenset()),
        (replace(HEALTHY, admin_level=""), "rights", "wrong", "sacctmgr -i add user slurmplug", ALL_ACTIONS),
        (replace(HEALTHY, admin_level="None"), "rights", "wrong", "sacctmgr -i modify user slurmplug", ALL_ACTIONS),
        (
            replace(HEALTHY, admin_level="", read_errors={"accounting": "sacctmgr exits 1"}),
            "rights", "wrong", "systemctl status slurmdbd", ALL_ACTIONS,
        ),
        (site(AccountingStorageType="(null)"), "accounting", "note", "slurmdbd", frozenset()),
        (site(JobSubmitPlugins="(null)"), "job_submit", "note", "JobSubmitPlugins=lua", frozenset()),
        (site(SlurmctldParameters="rl_enable"), "rl_enable", "note", "rl_refill_rate=50", frozenset()),
        (site(SchedulerParameters="bf_interval=30"), "bf_continue", "note", "bf_continue", frozenset()),
        (site(JobRequeue="0"), "requeue", "note", "JobRequeue=1", frozenset()),
        (site(PreemptMode="GANG,CANCEL"), "preemption", "note", "PreemptMode=REQUEUE", frozenset()),
        (
            replace(HEALTHY, config=MAILING, mail_problem="slurm.conf has no MailProg"),
            "mail", "note", "MailProg=/usr/bin/mail", frozenset(),
        ),
        (replace(HEALTHY, clock_offset=-7.2), "clock", "wrong", "timesyncd", ALL_ACTIONS),
        (replace(HEALTHY, clock_offset=None), "clock", "note", "timedatectl", frozenset()),
        (
            replace(HEALTHY, reports=PathStatus("/spool/reports", problem="No such file or directory")),
            "spool/reports", "wrong", "install -d -o slurmplug -g slurmplug -m 3773 /spool/reports", ALL_ACTIONS,
        ),
        (
            replace(HEALTHY, reports=folder("/spool/reports", 0o777)),
            "spool/reports", "note", "-m 3773", frozenset(),
        ),
        (
            replace(HEALTHY, requests=folder("/spool/requests", 0o777)),
            "spool/requests", "wrong", "-m 711", frozenset({"stop"}),
        ),
        (
            replace(HEALTHY, requests=folder("/spool/requests", 0o711, writable=False)),
            "spool/requests", "wrong", "-m 711", frozenset({"stop"}),
        ),
        (replace(HEALTHY, spool=folder("/spool", kind="xfs")), "shared spool", "note", "mount it", frozenset()),
        (replace(HEALTHY, spool=folder("/spool", kind="xfs", exported=True)), "shared spool", "ok", "", frozenset()),
        (replace(HEALTHY, ledger=folder("/lib", kind="nfs4")), "ledger", "wrong", "local disk", ALL_ACTIONS),
        (replace(HEALTHY, ledger=folder("/lib", kind="ext4", free=9)), "ledger", "note", "keep_days", frozenset()),
        (replace(HEALTHY, ledger_mode=0o644), "ledger", "note", "chmod o= /var/lib/slurmplug/", frozenset()),
        (replace(HEALTHY, ledger=folder("/lib", 0o757, kind="ext4")), "ledger", "wrong", "chmod o-w /lib", ALL_ACTIONS),
        (replace(HEALTHY, ledger_mode=0o666), "ledger", "wrong", "chmod o= /var/lib/slurmplug/ledger.db*", ALL_ACTIONS),
        (replace(HEALTHY, ledger=folder("/lib", writable=False)), "ledger", "wrong", "-m 750 /lib", ALL_ACTIONS),
        (replace(HEALTHY, shared=folder("/shared", 0o755)), "takeover", "note", "-m 700 /shared", frozenset()),
        (replace(HEALTHY, shared=folder("/s", writable=False)), "takeover", "wrong", "-m 700 /s", ALL_ACTIONS),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_how_to_fix_it(
    facts: Facts, check: str, level: str, fix: str, blocks: frozenset[str]
) -> None:
    finding = found(facts, check)
    assert (finding.level, finding.blocks) == (level, blocks)
    assert fix in finding.fix
    assert finding.message


def test_the_other_members_of_a_federation_are_read() -> None:
    text = (
        "Federation: fed\nSelf:       east:127.0.0.1:31524 ID:1 FedState:ACTIVE Features:\n"
        "Sibling:    west:127.0.0.1:18660 ID:2 FedState:ACTIVE Features: PersistConnSend/Recv:Yes/Yes Synced:Yes\n"
        "Sibling:    gone::0 ID:3 FedState:ACTIVE Features: PersistConnSend/Recv:No/No Synced:No\n"
    )
    assert parse_federation_siblings(text) == ("west", "gone")
    assert parse_federation_siblings("There are no federations.\n") == ()


def test_slurm_that_does_not_answer_leaves_the_paths_to_be_checked() -> None:
    findings = run_checks(replace(HEALTHY, settings={}, read_errors={"Slurm": "scontrol exits 1"}))
    assert findings[0].level == "wrong"
    assert [each.check for each in findings] == ["Slurm", "spool/reports", "spool/requests", "ledger"]


def test_root_and_slurms_own_user_need_no_operator() -> None:
    for user in ("root", "slurm"):
        assert found(replace(HEALTHY, user=user, admin_level=""), "rights").level == "ok"


def test_root_is_not_told_to_take_the_spool_from_the_daemons_account_only() -> None:
    finding = found(replace(HEALTHY, user="root", uid=0), "spool/reports")
    assert finding.level == "note"
    assert finding.fix.startswith("slurmplug doctor --user NAME")


def test_mail_is_looked_at_where_any_is_sent() -> None:
    assert "mail" not in {each.check for each in run_checks(HEALTHY)}
    mailing = replace(HEALTHY, config=MAILING, settings={**SETTINGS, "MailProg": "/bin/mail"})
    assert found(mailing, "mail").level == "ok"


def test_a_rate_that_suffices_for_the_budget_is_fine() -> None:
    assert found(site(SlurmctldParameters="rl_enable,rl_refill_rate=50"), "rl_enable").level == "ok"


def test_a_spool_of_this_machine_is_fine_where_it_is_the_only_node() -> None:
    alone = replace(HEALTHY, other_nodes=0, spool=folder("/spool", kind="ext4"))
    assert found(alone, "shared spool").level == "ok"


def test_what_blocks_everything_leaves_only_observing() -> None:
    blocks = blocked_actions(run_checks(replace(HEALTHY, clock_offset=60.0)))
    assert list(blocks) == ["everything"]
    assert "timesyncd" in blocks["everything"]
    assert restrict_modes(Modes(default="act", stop="act"), blocks) == Modes(default="observe")


def test_what_blocks_one_kind_leaves_the_others_as_they_were() -> None:
    blocks = blocked_actions(run_checks(site(PriorityType="priority/basic")))
    modes = restrict_modes(Modes(default="act"), blocks)
    assert (modes.of("rank"), modes.of("stop")) == ("observe", "act")


def test_nothing_blocked_changes_nothing() -> None:
    modes = Modes(default="act", rank="advise")
    assert restrict_modes(modes, blocked_actions(run_checks(HEALTHY))) == modes


def test_a_ledger_that_only_its_group_may_read_is_fine_and_so_is_a_folder_where_nobody_replaces_anothers() -> None:
    assert found(replace(HEALTHY, ledger_mode=0o640), "ledger").level == "ok"
    assert found(replace(HEALTHY, ledger=folder("/tmp", 0o1777, kind="ext4")), "ledger").level == "ok"


@pytest.mark.parametrize(("folder_mode", "seen"), [(0o755, 0o644), (0o750, 0o640)])
def test_what_a_ledger_lets_others_do_counts_where_they_can_come_to_it(folder_mode: int, seen: int) -> None:
    with TemporaryDirectory() as name:
        ledger = Path(name) / "ledger.db"
        config = Config.from_table({"ledger": {"path": ledger}})
        assert doctor_facts.collect_facts(config).ledger_mode is None
        ledger.touch()
        ledger.chmod(0o644)
        Path(name).chmod(folder_mode)
        assert doctor_facts.collect_facts(config).ledger_mode == seen


def test_a_folder_is_seen_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o3773)
    seen = doctor_facts.path_status(tmp_path)
    assert (seen.problem, seen.owner, seen.mode) == ("", os.geteuid(), 0o3773)
    assert seen.free > 0
    assert seen.file_system
    assert doctor_facts.path_status(tmp_path / "none").problem == "No such file or directory"
    (tmp_path / "file").touch()
    assert doctor_facts.path_status(tmp_path / "file").problem == "is not a folder"


def test_the_command_tells_each_finding_and_ends_with_1_where_one_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "slurmplug.toml"
    file.touch()
    monkeypatch.setattr("slurmplug.commands.doctor._account", lambda: "")
    monkeypatch.setattr(doctor_facts, "collect_facts", lambda config: HEALTHY)
    well = run("doctor", "--config", str(file))
    assert well.exit_code == 0
    assert "0 checks failed, 0 notes" in well.output
    monkeypatch.setattr(doctor_facts, "collect_facts", lambda config: replace(HEALTHY, clock_offset=60.0))
    ill = run("doctor", "--config", str(file))
    assert ill.exit_code == 1
    assert "WRONG  clock " in ill.output
    assert "fix: systemctl enable --now systemd-timesyncd" in ill.output


def test_a_user_is_not_told_to_take_the_rights_and_folders_of_the_daemons_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slurmplug.toml").touch()
    seen = replace(HEALTHY, user="ada", uid=1001, admin_level="", clock_offset=60.0)
    monkeypatch.setattr(doctor_facts, "collect_facts", lambda config: seen)
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    monkeypatch.setattr("slurmplug.commands.doctor.user_name", lambda: "ada")
    command = ("doctor", "--config", str(tmp_path / "slurmplug.toml"))
    as_user, as_account = run(*command).output, run(*command, "--user", "ada").output
    assert "ada is not an Operator" in as_user
    assert "sacctmgr" not in as_user
    assert "install -d" not in as_user
    assert "fix: systemctl enable --now systemd-timesyncd" in as_user
    assert "sacctmgr -i add user ada" in as_account
    seen = replace(seen, read_errors={"accounting": "sacctmgr exits 1"}, ledger=replace(HEALTHY.ledger, free=1))
    as_user = run(*command).output
    assert "systemctl status slurmdbd" in as_user
    assert "free space on the disk of" in as_user


@pytest.mark.parametrize(
    ("path", "exported"), [("/export/slurm plug/spool", True), ("/export/slurm", False), ("/exp", False)]
)
def test_what_the_nfs_server_exports_is_read_from_its_table(
    path: str, exported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etab").write_text(f"{tmp_path}/export/slurm\\040plug\t10.0.0.0/8(rw,sync)\n\n")
    monkeypatch.setattr(doctor_facts, "_EXPORTS", tmp_path / "etab")
    folder = Path(f"{tmp_path}{path}")
    folder.mkdir(parents=True)
    assert doctor_facts.path_status(folder).exported is exported


@pytest.mark.parametrize(("uid", "name", "told"), [(1001, "ada", True), (995, "slurmplug", False), (0, "root", False)])
def test_who_is_no_administrator_is_told_first_that_it_is_for_those(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, name: str, told: bool
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("slurmplug.commands.doctor.user_name", lambda: name)
    output = run("doctor", "--config", str(tmp_path / "none.toml")).output
    assert output.startswith("doctor is for administrators") == told
    assert "there is no configuration" in output
