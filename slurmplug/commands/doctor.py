"""`slurmplug doctor`: what this site lacks, and how to fix it."""

import os
import pwd
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from slurmplug import doctor_facts
from slurmplug.commands.options import config_option, configured, emit, json_option
from slurmplug.doctor import Finding, examine
from slurmplug.errors import UsageError
from slurmplug.table import as_json, counted, printable

ACCOUNT = "slurmplug"
_SIGNS = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


@click.command()
@config_option
@click.option("--user", default="", metavar="NAME", help=f"The daemon's account; as root, {ACCOUNT} where it is there.")
@json_option
def doctor(*, config_path: Path, user: str, wants_json: bool) -> None:
    """Check Slurm, the daemon's rights, the spool, the clock and the ledger; each finding says how to fix it.

    A note is worth knowing; what is WRONG keeps the daemon from acting, and ends this with 1.
    """
    config = configured(config_path)
    account = user or _account()
    if account and os.geteuid() == 0:
        _become(account)
    findings = examine(doctor_facts.look(config))
    emit([as_json({"findings": [_mapping(each) for each in findings]})] if wants_json else _lines(findings))
    if any(each.level == "wrong" for each in findings):
        raise SystemExit(1)


def _account() -> str:
    try:
        return pwd.getpwnam(ACCOUNT).pw_name if os.geteuid() == 0 else ""
    except KeyError:
        return ""


def _become(account: str) -> None:
    """Look with the daemon's eyes: what root can read says nothing of what the daemon can."""
    try:
        entry = pwd.getpwnam(account)
    except KeyError as error:
        raise UsageError(f"there is no account {account}: name the daemon's with --user") from error
    os.initgroups(account, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _mapping(finding: Finding) -> dict[str, object]:
    return {**finding._asdict(), "hinders": sorted(finding.hinders)}


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    width = max(len(each.about) for each in findings)
    for each in findings:
        yield f"{_SIGNS[each.level]}  {each.about:<{width}}  {printable(each.says)}"
        if each.mend:
            yield f"{'':<{width + 9}}fix it: {printable(each.mend)}"
    wrong, notes = (sum(each.level == level for each in findings) for level in ("wrong", "note"))
    yield f"{counted(wrong, 'thing')} wrong, {counted(notes, 'note')}"
