"""`slurmplug replay`: a site's own past under Slurm alone, and under slurmplug on top of it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from slurmplug.commands.assuming import Assumed, assume_options
from slurmplug.commands.experiment import described_replay, where_options
from slurmplug.commands.options import emit, json_option, ledger_options, load_config
from slurmplug.commands.past_jobs import PastJobs, past_options
from slurmplug.commands.site_files import SiteFiles, site_options
from slurmplug.config import policy_registry
from slurmplug.config.schema import DEFAULT_PATH, Config
from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.side_by_side import Where
from slurmplug.sim.experiment.simulation import NO_CONTENTION, SimulationSettings
from slurmplug.sim.slurm.partitions import strays
from slurmplug.sim.slurm.site_conf import SiteConf
from slurmplug.sim.slurm.whole_nodes import with_whole_nodes
from slurmplug.sim.workloads.load import load


@click.command()
@past_options
@site_options
@click.option("--cluster", default="", metavar="NxG", help="Nodes and GPUs on each, 16x4 or 8x4+2x8, if not these.")
@click.option("--policy", default="", metavar="NAME", help="A policy, if not the configured one.")
@assume_options("anew in each sample")
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Samples of what is assumed: seeds 0, 1, ...",
)
@click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs.")
@click.option("--skip-bad", is_flag=True, help="Skip rows that cannot be used, rather than reject the file.")
@click.option(
    "--html",
    "html_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page with plots there.",
)
@where_options
@ledger_options
@json_option
def replay(
    *,
    past: PastJobs,
    site: SiteFiles,
    cluster: str,
    policy: str,
    assumed: Assumed,
    samples: int,
    jobs: int | None,
    skip_bad: bool,
    html_path: Path | None,
    where: Where,
    config_path: Path,
    ledger_path: Path | None,
    wants_json: bool,
) -> None:
    """Replay the site's own past: under Slurm alone, which is first compared with what happened, and under slurmplug.

    The past is one of --sacct, --from-ledger, --since and WORKLOAD, a log that `slurmplug simulate` reads (swf:FILE).
    """
    from slurmplug.commands import replay_text  # noqa: PLC0415
    from slurmplug.sim.experiment import replay as experiment  # noqa: PLC0415  scipy.stats takes a second to load
    from slurmplug.sim.experiment import replay_page, replay_report  # noqa: PLC0415

    config = Config() if config_path == DEFAULT_PATH and not config_path.exists() else load_config(config_path)
    if policy:
        config = config.replaced(policy=policy)
    made_policy = policy_registry.policy(config)
    conf = site.read()
    write_page = replay_page.writing(html_path) if html_path else None
    with past.opened(config, ledger_path) as named:
        log = load(named, jobs=jobs, skip_bad=skip_bad)
    of_cluster = cluster or conf.cluster or (f"{log.nodes}x{log.gpus_a_node}" if log.nodes else "")
    if not of_cluster:
        raise UsageError("the log does not say what ran it: name its slurm.conf with --slurm-conf, or --cluster 16x4")
    settings = SimulationSettings(
        of_cluster,
        config.interval,
        run_times="forecast",
        launcher="slurm",
        slurm=conf.settings if of_cluster == conf.cluster else replace(conf.settings, partitions={}),
        contention=NO_CONTENTION,
        guardrails=config.guardrails,
    )
    found = experiment.samples(experiment.Past(partial(assumed.of, log), made_policy, settings), samples, where)
    made = replay_report.report(
        found,
        workload=past.title,
        cluster=of_cluster,
        policy=made_policy.name,
        not_followed=(*conf.not_followed, *_not_followed_of_jobs(conf, log, settings)),
        has_limits=site.have_limits,
    )
    notes = replay_text.notes(made, described_replay(assumed.of(log, 0), len(found)))
    emit(replay_text.json_lines(made, notes) if wants_json else replay_text.lines(made, notes))
    if write_page:
        write_page(made, found, notes)


def _not_followed_of_jobs(conf: SiteConf, log: Workload, settings: SimulationSettings) -> Iterator[str]:
    nodes = parse(settings.cluster)
    if conf.settings.partitions and not settings.slurm.partitions:
        yield "nodes, PriorityTier and OverSubscribe of partitions (the nodes are not those of slurm.conf)"
    if found := strays(list(with_whole_nodes(log.jobs, nodes, settings.slurm)), nodes, settings.slurm.partitions):
        listed = _listed(found)
        yield f"partitions that are not in slurm.conf or could not hold these jobs, which run on any node: {listed}"
    if found := Counter(job.gpu_type for job in log.jobs if job.gpu_type not in {*nodes.gpu_type, ""}):
        yield f"types of GPUs that no node has, whose jobs run on any: {_listed(found)}"


def _listed(jobs: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,} job{'s' * (count > 1)})" for name, count in sorted(jobs.items()))
