"""`slurmplug replay`: a site's own past under Slurm alone, and under slurmplug on top of it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from slurmplug.commands.experiment import curves_option, described_replay, read_curves, where_options
from slurmplug.commands.options import emit, json_option, ledger_options, load_config
from slurmplug.config import policy_registry
from slurmplug.config.schema import DEFAULT_PATH, Config
from slurmplug.console import progress
from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment.side_by_side import Where
from slurmplug.sim.experiment.simulation import NO_CONTENTION, SimulationSettings
from slurmplug.sim.slurm import site_conf, site_limits
from slurmplug.sim.slurm.launcher import LauncherSettings
from slurmplug.sim.slurm.site_conf import SiteConf
from slurmplug.sim.workloads.assumed import OURS, with_assumed_directives
from slurmplug.sim.workloads.load import load

NO_CONF = SiteConf(LauncherSettings(), "", ("all settings of slurm.conf (name it with --slurm-conf)",))


@click.command()
@click.argument("name", metavar="[WORKLOAD]", required=False)
@click.option("--sacct", "sacct_path", metavar="FILE", help="What `sacct --parsable2` listed; the same as sacct:FILE.")
@click.option("--from-ledger", is_flag=True, help="The jobs in the ledger that ended by themselves.")
@click.option("--since", default="", metavar="TIME", help="What sacct lists from TIME on, such as now-30days.")
@click.option(
    "--slurm-conf",
    "conf_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take nodes, priorities and backfill from this slurm.conf.",
)
@click.option(
    "--sacctmgr",
    "dump_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Follow the limits in this file of `sacctmgr dump`.",
)
@click.option(
    "--qos",
    "qos_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Follow the QOS in this output of `sacctmgr --parsable2 show qos`.",
)
@click.option("--cluster", default="", metavar="NxG", help="Nodes and GPUs on each, 16x4 or 8x4+2x8, if not these.")
@click.option("--policy", default="", metavar="NAME", help="A policy, if not the configured one.")
@click.option(
    "--assume-directives",
    "share",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Give directives and learning curves, drawn anew in each sample, to this share of the jobs that have none.",
)
@curves_option
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
    name: str | None,
    sacct_path: str | None,
    from_ledger: bool,
    since: str,
    conf_path: Path | None,
    dump_path: Path | None,
    qos_path: Path | None,
    cluster: str,
    policy: str,
    share: float | None,
    curves_path: Path | None,
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

    if curves_path and share is None:
        raise UsageError("--curves is for --assume-directives SHARE: name a share, from 0 to 1")
    config = Config() if config_path == DEFAULT_PATH and not config_path.exists() else load_config(config_path)
    if policy:
        config = config.model_copy(update={"policy": policy})
    made_policy = policy_registry.policy(config)
    conf = site_conf.read(conf_path) if conf_path else NO_CONF
    if dump_path or qos_path:
        conf = site_limits.with_limits(conf, site_limits.read(dump_path, qos_path))
    curves = read_curves(curves_path)
    write_page = replay_page.writing(html_path) if html_path else None
    with _past(name, sacct_path, from_ledger=from_ledger, since=since, config=config, ledger_path=ledger_path) as past:
        log = load(past, jobs=jobs, skip_bad=skip_bad)
    of_cluster = cluster or conf.cluster or (f"{log.nodes}x{log.gpus_a_node}" if log.nodes else "")
    if not of_cluster:
        raise UsageError("the log does not say what ran it: name its slurm.conf with --slurm-conf, or --cluster 16x4")

    def of_sample(number: int) -> Workload:
        if share is None:
            return log
        return with_assumed_directives(log, share, number, curves, str(curves_path or OURS))

    settings = SimulationSettings(
        of_cluster,
        config.interval,
        run_times="forecast",
        launcher="slurm",
        slurm=conf.settings,
        contention=NO_CONTENTION,
        guardrails=config.guardrails,
    )
    found = experiment.samples(experiment.Past(of_sample, made_policy, settings), samples, where)
    made = replay_report.report(
        found,
        workload=_past_name(name, sacct_path, since=since),
        cluster=of_cluster,
        policy=made_policy.name,
        not_followed=conf.not_followed,
        has_limits=bool(dump_path or qos_path),
    )
    notes = replay_text.notes(made, described_replay(of_sample(0), len(found)))
    emit(replay_text.json_lines(made, notes) if wants_json else replay_text.lines(made, notes))
    if write_page:
        write_page(made, found, notes)


def _past_name(name: str | None, sacct_path: str | None, *, since: str) -> str:
    return name or sacct_path or (f"sacct since {since}" if since else "the ledger")


@contextmanager
def _past(
    name: str | None,
    sacct_path: str | None,
    *,
    from_ledger: bool,
    since: str,
    config: Config,
    ledger_path: Path | None,
) -> Iterator[str]:
    """The log as `load` names it.

    Raises:
        UsageError: none is named, or several
        ReadFailed: sacct does not answer
    """
    if sum(map(bool, (name, sacct_path, from_ledger, since))) != 1:
        raise UsageError(
            "name one log of past jobs: --sacct FILE, --from-ledger, --since now-30days, or a log such as swf:FILE"
        )
    if since:
        from slurmplug.cluster.job_history import JobHistoryClient  # noqa: PLC0415  other pasts do without

        with tempfile.TemporaryDirectory(prefix="slurmplug-") as folder:
            path = Path(folder) / "sacct.txt"
            with progress.spinner("sacct"):
                listed = JobHistoryClient(config.slurm.conf, config.slurm.bin).runs(since)
            path.write_text(listed, encoding="utf-8")
            yield f"sacct:{path}"
    elif from_ledger:
        yield f"ledger:{ledger_path or config.ledger.path}"
    else:
        yield name or f"sacct:{sacct_path}"
