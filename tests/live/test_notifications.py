"""Users are told of their jobs by the program that a real slurm.conf names for mail."""

import re
from collections.abc import Callable
from pathlib import Path

from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.spec import ClusterSpec, Node
from tests.live.daemon_process import daemon_beside, training

MAIL = """#!/bin/sh
{ printf '%%s|' "$@"; cat; printf '\\0'; } >> %s
"""


def mailbox(folder: Path) -> tuple[Path, Path]:
    """A program for MailProg, and the file in which it leaves what it was given."""
    program, box = folder / "mail", folder / "box"
    program.write_text(MAIL % box)
    program.chmod(0o755)
    box.touch()
    box.chmod(0o666)
    return program, box


def test_users_get_mail_of_their_jobs_by_slurms_own_program(
    folder: Path, special_cluster: Callable[[ClusterSpec], Sandbox]
) -> None:
    program, box = mailbox(folder)
    settings = {"MailProg": str(program), "MailDomain": "example.org"}
    cluster = special_cluster(ClusterSpec(nodes=(Node(),), settings=settings))
    user, other = cluster.researchers[:2]
    with daemon_beside(cluster) as daemon:
        daemon.start('[notifications]\nmail = "all"\n')
        job = cluster.sbatch(user, training("#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=400", gpus=1))
        quiet = cluster.sbatch(
            other, training("#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=400 --notify=off", gpus=1)
        )
        for each in (job, quiet):
            cluster.wait_job(each, "COMPLETED", 120)
        cluster.wait(lambda: "stopped" in box.read_text(), 180, "mail")
        daemon.pass_cycles(3)
        assert daemon.query("SELECT job_id, kind, result FROM notifications JOIN jobs ON jobs.id = job") == [
            {"job_id": int(job), "kind": "stopped", "result": "sent"}
        ]
    [mail] = box.read_text().split("\0")[:-1]
    option, subject, address, text = mail.split("|", 3)
    assert (option, address) == ("-s", f"{user}@example.org")
    assert re.fullmatch(rf"slurmplug on \S+: job {job} \(\S+\): stopped", subject)
    assert "meets the target of 0.9 that the job set" in text
