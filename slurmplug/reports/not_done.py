"""What a job's directives ask for and cannot be done, and why: as far as its directives and its reports show."""

import difflib
from collections.abc import Collection, Iterator, Mapping

from slurmplug.config.schema import Config
from slurmplug.console.table import printable
from slurmplug.directives.parser import Directives
from slurmplug.reports.job_view import Job

UNREAD = ("after", "blank", "colon")
"""The rules of the parser's warnings for what is not read. Options without effect are looked up as they are now."""
NO_REQUEUE = "no requeue"
"""The rule by which a job is not restarted that Slurm does not requeue."""
SHOWN = 8
"""The most quantities that are named."""


def sentences(
    job: Job, modes: Mapping[str, str], vetoes: Collection[str] = (), no_sizes: str = "", *, unmatched: bool = False
) -> Iterator[str]:
    """One for each reason.

    Args:
        modes: of the last cycle, by kind of action, and `default`; empty where there was none
        vetoes: the rules by which something that was planned for the job was not done
        no_sizes: the setting by which this site's policy gives no job another number of GPUs; empty if it does
        unmatched: whether its `slurmplug run` said that a pattern matched nothing
    """
    given = job.directives
    if given is None or not given.managed:
        return
    yield from before_submission(given, modes, no_sizes, vetoes)
    if unmatched and job.iteration is None:
        yield "Its progress is not known: its output has not matched the --pattern of slurmplug run."
    elif unmatched and not job.live:
        yield "No line of its output has matched one of the patterns of slurmplug run."
    if job.iteration is not None:
        yield from _of_reports(job, given, job.iteration)


def before_submission(
    given: Directives, modes: Mapping[str, str], no_sizes: str, vetoes: Collection[str] = ()
) -> Iterator[str]:
    """The reasons that are known before the job runs."""
    if given.managed:
        yield from (f"{warning}." for warning in given.warnings if warning.rule in UNREAD)
        yield from _of_directives(given, modes, vetoes, no_sizes)


def no_sizes(config: Config) -> str:
    """The setting by which this site's policy gives no job another number of GPUs; empty if it does."""
    grows = config.policies.get(config.policy, {}).get("grow", True)
    return "" if grows else f"policies.{config.policy}.grow is false"


def _of_directives(
    given: Directives, modes: Mapping[str, str], vetoes: Collection[str], no_sizes: str
) -> Iterator[str]:
    if _optstop(given) and given.max_iterations is None:
        at_target = "at its target, or " if given.target is not None else ""
        yield (
            f"By optstop it is stopped only {at_target}if its training diverges: how its training ends is not forecast "
            "without --max-iterations."
        )
    if given.gpus is None or given.gpus.least == given.gpus.most:
        return
    mode = modes.get("resize") or modes.get("default", "act")
    if mode != "act":
        yield f"Its number of GPUs is not changed: the mode for resizes is {mode} here."
    elif no_sizes:
        yield f"Its number of GPUs is not changed: {no_sizes} here."
    elif NO_REQUEUE in vetoes:
        yield (
            "Its number of GPUs is not changed once it runs, only before: a job is requeued for that, and it was "
            "submitted with --no-requeue, or the site does not requeue (JobRequeue=0)."
        )
    elif given.checkpoint is None:
        yield (
            "Its number of GPUs is not changed once it runs, only before: a job is restarted for that, which requires "
            "--checkpoint."
        )


def _of_reports(job: Job, given: Directives, iteration: float) -> Iterator[str]:
    judged = job.quantity
    if judged not in job.quantities:
        if given.target is not None:
            yield f"Its target is not judged: it has never reported {judged}, but {_reported(job)}{_meant(job, judged)}"
        elif _optstop(given):
            yield (
                f"It is not judged by how good its model is: it has reported {_reported(job)}, neither accuracy nor a "
                "validation quantity. --stop=optstop:NAME names another."
            )
    if given.max_iterations is not None and iteration > given.max_iterations:
        yield (
            f"It is not stopped any more, and when it ends is not known: it has reported iteration {iteration:.15g}, "
            f"beyond its --max-iterations={given.max_iterations}."
        )


def _optstop(given: Directives) -> bool:
    return "optstop" in (given.stop_option, given.allow_downgrade)


def _reported(job: Job) -> str:
    names = sorted(job.quantities)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(map(printable, names[:SHOWN]))}{more}" if names else "nothing but iterations"


def _meant(job: Job, judged: str) -> str:
    near = difflib.get_close_matches(judged, sorted(job.quantities), n=1, cutoff=0.5)
    return f"; did you mean --target={near[0]}...?" if near else "."
