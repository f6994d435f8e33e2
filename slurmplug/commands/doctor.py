"""`slurmplug doctor`: checks that a site has what slurmplug needs, and says how to fix what is missing."""

import os
import pwd
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from slurmplug.commands.options import config_option, emit, json_option, load_config, user_name
from slurmplug.console.table import counted, printable, to_json
from slurmplug.doctor import facts
from slurmplug.doctor.checks import Finding, for_others, run_checks
from slurmplug.errors import UsageError

ACCOUNT = "slurmplug"
_LEVELS = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


@click.command()
@config_option
@click.option("--user", default="", metavar="NAME", help=f"The daemon's account; for root, {ACCOUNT} if it exists.")
@json_option
def doctor(*, config_path: Path, user: str, wants_json: bool) -> None:
    """Check Slurm, the daemon's rights, the spool, the clock and the ledger, and say how to fix each problem.

    A note is worth knowing. What is WRONG keeps the daemon from acting; the exit status is then 1.
    """
    others = bool(os.geteuid()) and user_name() not in (ACCOUNT, user)
    if others:
        click.echo(
            f"doctor is for administrators: run it as root or as the daemon's account. As {printable(user_name())}, "
            "some checks fail that would not fail for them; how to fix these is not shown. If the daemon runs as "
            f"{printable(user_name())}: slurmplug doctor --user {printable(user_name())}",
            err=True,
        )
    config = load_config(config_path)
    account = user or _account()
    if account and os.geteuid() == 0:
        _become(account)
    findings = run_checks(facts.with_pyslurm(facts.collect_facts(config)))
    findings = for_others(findings) if others else findings
    emit([to_json({"findings": [_mapping(each) for each in findings]})] if wants_json else _lines(findings))
    if any(each.level == "wrong" for each in findings):
        raise SystemExit(1)


def _account() -> str:
    try:
        return pwd.getpwnam(ACCOUNT).pw_name if os.geteuid() == 0 else ""
    except KeyError:
        return ""


def _become(account: str) -> None:
    """Check as the daemon's account: what root can read says nothing about what the daemon can."""
    try:
        entry = pwd.getpwnam(account)
    except KeyError as error:
        raise UsageError(f"there is no account {account}: give the daemon's with --user") from error
    os.initgroups(account, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _mapping(finding: Finding) -> dict[str, object]:
    return {
        "about": finding.check,
        "level": finding.level,
        "says": finding.message,
        "mend": finding.fix,
        "hinders": sorted(finding.blocks),
    }


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    width = max(len(each.check) for each in findings)
    for each in findings:
        yield f"{_LEVELS[each.level]}  {each.check:<{width}}  {printable(each.message)}"
        if each.fix:
            yield f"{'':<{width + 9}}fix: {printable(each.fix)}"
    failed, notes = (sum(each.level == level for each in findings) for level in ("wrong", "note"))
    yield f"{counted(failed, 'check')} failed, {counted(notes, 'note')}"
