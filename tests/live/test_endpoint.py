"""The endpoint with the real munged and Slurm's own PrivateData."""

import json
import time
from collections.abc import Iterator

import pytest

from slurmplug.endpoint import munge
from slurmplug.errors import EndpointError
from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.login_node import LoginNode

WAITING = "#!/bin/sh\n#SBATCH --gres=gpu:4\n#PLUG --urgency={}\nsleep 600\n"


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def test_users_on_login_nodes_read_their_own_jobs_and_nobody_elses(cluster: Sandbox, daemon: DaemonProcess) -> None:
    ada, bob = cluster.researchers[:2]
    cluster.wait_job(
        cluster.sbatch(cluster.researchers[2], "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"), "RUNNING"
    )
    his = cluster.sbatch(bob, WAITING.format(9), "--job-name=secret")
    time.sleep(1.1)  # Slurm keeps whole seconds: of one second, squeue's order would say who came first
    hers = cluster.sbatch(ada, WAITING.format(2))
    login = LoginNode(cluster)
    daemon.start(login.listen, policy="fifo")  # his first, whatever others' jobs taught
    daemon.pass_cycles()

    def seen(user: str, *arguments: str) -> set[int]:
        return {job["jobidraw"] for job in json.loads(login.ask(user, *arguments, "--json").stdout)["jobs"]}

    assert seen(ada, "queue") == {hers}
    all_told = json.loads(login.ask(ada, "acct", "-a", "--json").stdout)["jobs"]
    assert hers in {job["jobidraw"] for job in all_told}
    assert {job["user"] for job in all_told} == {ada}  # jobs of other tests, too, but nobody else's
    assert seen(bob, "queue") == {his}
    assert {hers, his} <= seen(cluster.operator, "queue")
    assert "Ahead of it: a job that Slurm does not show you." in login.ask(ada, "why", str(hers)).stdout
    assert f"slurmplug knows no job {his}" in login.ask(ada, "why", str(his)).stderr
    assert "secret" in login.ask(bob, "why", str(his)).stdout
    assert "daemon      alive" in login.ask(ada, "status").stdout


NAMES_OTHERS = """
from dataclasses import dataclass
import numpy as np
from policies.plan import Action, OtherJob, Plan, Reason
from policies.policy import Policy

@dataclass(frozen=True)
class Settings:
    pass

class NamesOthers(Policy):
    name = "names-others"

    def __init__(self, settings=Settings()):
        self.settings = settings

    def decide(self, snapshot, forecasts, memory):
        jobs = snapshot.jobs
        waiting = np.flatnonzero(jobs.pending & jobs.managed).tolist()
        pairs = [(row, by) for row in waiting for by in waiting if jobs.user[row] != jobs.user[by]]
        facts = [{"by": OtherJob(jobs.keys[by], 987.654), "rank": 1.0} for _, by in pairs]
        rules = ("gives way", "a rule of a policy from elsewhere")
        actions = [
            Action("preempt", jobs.keys[row], Reason(rule, each))
            for (row, _), each in zip(pairs, facts)
            for rule in rules
        ]
        notes = {jobs.keys[row]: Reason(rules[1], each) for (row, _), each in zip(pairs, facts)}
        return Plan(-jobs.submitted, actions=tuple(actions), notes=notes)
"""


def test_whatever_a_policy_says_of_others_jobs_is_told_to_those_only_who_see_them(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    ada, bob = cluster.researchers[:2]
    full = cluster.sbatch(cluster.researchers[2], "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n")
    cluster.wait_job(full, "RUNNING")
    his, hers = cluster.sbatch(bob, WAITING.format(9)), cluster.sbatch(ada, WAITING.format(2))
    policy = cluster.folder / "names_others.py"
    policy.write_text(NAMES_OTHERS)
    policy.chmod(0o644)
    login = LoginNode(cluster)
    daemon.start(login.listen, policy=f"{policy}:NamesOthers")
    daemon.pass_cycles()

    def ask(user: str, *arguments: str) -> str:
        return login.ask(user, *arguments).stdout

    told = ask(cluster.operator, "why", str(hers))
    assert f"It is preempted by job {his}, whose score of 988 is above its own of 1" in told
    assert f"by job {his}" in told
    for arguments in (("why", str(hers)), ("why", str(hers), "--json"), ("acct", "-j", str(hers), "--json")):
        hidden = ask(ada, *arguments)
        assert str(hers) in hidden
        assert f"job {his}" not in hidden
        assert "987.654" not in hidden
        assert "whose score" not in hidden
    [explained] = json.loads(ask(ada, "why", str(hers), "--json"))["jobs"]
    assert [row["facts"]["by"] for row in explained["decisions"]] == [None, None]
    assert "It is preempted by a job that Slurm does not show you" in ask(ada, "why", str(hers))


def test_munged_tells_who_sent_a_credential_and_takes_it_once(cluster: Sandbox) -> None:
    at = cluster.layout.munge_socket
    payload = b"of a request\n\nSTATUS: 0"
    made = cluster.run(cluster.researchers[0], ["munge", f"--socket={at}"], input=payload.decode()).stdout.strip()
    sender = munge.decode(made, at)
    uid = int(cluster.run(cluster.researchers[0], ["id", "-u"]).stdout)
    assert (sender.uid, sender.payload) == (uid, payload)
    with pytest.raises(EndpointError, match="used before"):
        munge.decode(made, at)
    assert munge.decode(munge.encode(payload, at), at) == (0, payload)
