"""A snapshot that lacks jobs is not acted on; jobs that ended are not lacking, however many ended at once."""

from pathlib import Path

from policies.plan import Reason
from tests.ledgers import Site


def test_a_burst_of_submissions_that_are_cancelled_freezes_nothing(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        burst = [site.cluster.submit() for _ in range(40)]
        site.cycle()
        for job_id in burst[:35]:
            site.cluster.end(job_id, "CANCELLED")
        assert site.cycle().verdict.frozen is None
        for job_id in burst[:35]:
            site.cluster.purge(job_id)
        assert site.cycle().verdict.frozen is None


def test_nor_where_slurm_has_forgotten_them_and_the_accounting_has_not(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        burst = [site.cluster.submit() for _ in range(40)]
        site.cycle()
        for job_id in burst[:35]:
            site.cluster.end(job_id, "CANCELLED")
            site.cluster.purge(job_id)
        assert site.cycle().verdict.frozen is None


def test_jobs_that_are_listed_neither_alive_nor_ended_do_however_many_are_new(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        jobs = [site.cluster.submit() for _ in range(40)]
        site.cycle()
        away = {job_id: site.cluster.jobs.pop(job_id) for job_id in jobs[:21]}
        for _ in range(40):
            site.cluster.submit()
        record = site.cycle()
        assert record.verdict.frozen == Reason("partial snapshot", {"missing": 21, "alive": 40})
        assert record.commands == ()
        site.cluster.jobs |= away
        assert site.cycle().verdict.frozen is None
