"""Whatever limits QOS and associations have: at no instant of a simulated schedule do running jobs exceed one."""

from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.baselines.slurm import Slurm
from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits, Tres
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.sim_jobs import job, simulation, speed

GPU = "gres/gpu"
USERS, ACCOUNTS, QOS = ("ada", "bob"), ("vision", "speech"), ("normal", "high")
LAB = "lab"
"""above both accounts"""

amounts = st.dictionaries(st.sampled_from([GPU, JOBS, "cpu"]), st.integers(0, 6).map(float), max_size=2)
qos_limits = st.builds(QosLimits, group=amounts, job=amounts, user=amounts, account=amounts)


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    """A QOS has limits, or an association: which of two of one kind counts has tests of its own."""
    if draw(st.booleans()):
        return Limits(qos={name: draw(qos_limits) for name in QOS})
    found = {Assoc(LAB, "", ""): AssocLimits(group=draw(amounts))}
    for account in ACCOUNTS:
        found[Assoc(account, "", "")] = AssocLimits(group=draw(amounts), parent=LAB)
        for user in USERS:
            most = draw(st.one_of(st.just(float("inf")), st.integers(0, 3).map(float)))
            found[Assoc(account, user, "")] = AssocLimits(group=draw(amounts), job=draw(amounts), jobs=most)
    return Limits(assocs=found)


jobs = st.builds(
    lambda submit, gpus, seconds, user, account, qos, cpus: job(
        submit=float(submit), gpus=gpus, iterations=seconds, speed=speed((gpus, 1, 1.0)), time_limit=2.0 * seconds,
        user=user, account=account, qos=qos, cpus=cpus,
    ),
    st.integers(0, 60), st.integers(1, 4), st.integers(1, 90), st.sampled_from(USERS), st.sampled_from(ACCOUNTS),
    st.sampled_from(QOS), st.integers(0, 4),
)  # fmt: skip


def sums(of: Limits, one: SimJob) -> Iterator[tuple[Tres, Callable[[SimJob], bool]]]:
    """Each limit on the sum over jobs that this one is of, and over which jobs."""
    if of.qos:
        qos = of.qos[one.qos]
        yield qos.group, lambda other: other.qos == one.qos
        yield qos.user, lambda other: (other.qos, other.user) == (one.qos, one.user)
        yield qos.account, lambda other: (other.qos, other.account) == (one.qos, one.account)
        return
    own = of.assocs[Assoc(one.account, one.user, "")]
    yield {**own.group, JOBS: min(own.jobs, own.group.get(JOBS, own.jobs))}, lambda other: below(other, one)
    yield of.assocs[Assoc(one.account, "", "")].group, lambda other: other.account == one.account
    yield of.assocs[Assoc(LAB, "", "")].group, lambda _: True


def below(other: SimJob, one: SimJob) -> bool:
    return (other.account, other.user) == (one.account, one.user)


def of_a_job(of: Limits, one: SimJob) -> Tres:
    return of.qos[one.qos].job if of.qos else of.assocs[Assoc(one.account, one.user, "")].job


def use(one: SimJob) -> Tres:
    return {GPU: float(one.gpus), JOBS: 1.0, "cpu": float(one.cpus)}


def within(limit: Tres, running: list[SimJob], starts: SimJob) -> bool:
    """Whether the sum is no more than the limit, of what the job that starts uses."""
    totals = {kind: sum(use(one)[kind] for one in running) for kind in limit}
    return all(totals[kind] <= most or not use(starts)[kind] for kind, most in limit.items())


@given(st.lists(jobs, min_size=1, max_size=12), limits(), st.sampled_from([0.0, 30.0]))
@settings(max_examples=150, deadline=None)
def test_at_no_instant_do_running_jobs_exceed_a_limit_and_who_never_starts_could_not(
    submitted: list[SimJob], of: Limits, bf_interval: float
) -> None:
    slurm = LauncherSettings(pace=0.1, limits=of, bf_interval=bf_interval)
    made = simulation(*submitted, policy=Slurm(), cluster="2x4", launcher="slurm", slurm=slurm, cycles=False)
    finished = made.run().finished
    begun = [each for each in finished if each.started == each.started]
    for each in begun:
        running = at(begun, each.started)
        assert within(of_a_job(of, each.job), [each.job], each.job)
        assert all(within(limit, [*filter(holds, running)], each.job) for limit, holds in sums(of, each.job))
    for each in finished:
        alone = within(of_a_job(of, each.job), [each.job], each.job) and all(
            within(limit, [each.job], each.job) for limit, _ in sums(of, each.job)
        )
        assert alone == (each in begun)


def at(begun: list[FinishedJob], time: float) -> list[SimJob]:
    return [each.job for each in begun if each.started <= time < each.ended]
