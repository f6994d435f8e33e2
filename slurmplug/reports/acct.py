"""The fields that `slurmplug acct` can show of a job: named as in sacct where that has them, and those of slurmplug.

`python -m slurmplug.reports.acct` writes the table of `docs/reports.md` again; run it in the root of the sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplug.console.table import Field, Value
from slurmplug.directives.generated import Generated
from slurmplug.intake.job_facts import SHOWN_ID, shown_id
from slurmplug.reports import sacct_fields
from slurmplug.reports.fact_fields import OfFacts, fact, text

if TYPE_CHECKING:
    from slurmplug.config.schema import Config
    from slurmplug.reports.job_view import Job

DEFAULT = "jobid,jobname,user,partition,gpus,state,exitcode,elapsed,iterations,maxiterations,value,valueat,stop"
_GPU_HOUR = 3_600.0


def _directive(value: Callable[[Any], Value]) -> Callable[[Job], Value]:
    return lambda job: value(job.directives) if job.directives else None


def exit_code(code: int) -> str:
    """STATUS:SIGNAL as sacct shows it, from an exit code as a shell has it."""
    return f"0:{code - 128}" if code > 128 else f"{code}:0"


def _target(directives: Any) -> str | None:
    target = directives.target
    return f"{target.quantity}{target.relation}{target.value:g}" if target else None


def _gpu_range(directives: Any) -> str | None:
    return f"{directives.gpus.least}..{directives.gpus.most}" if directives.gpus else None


def _not_charged(_: Job) -> None:
    """Until `charged` has the rates."""


def attained(job: Job) -> float:
    """GPU hours, in all runs."""
    before: float = job.columns["attained_before"]
    return (before + job.facts.of_gpus.whole * job.elapsed) / _GPU_HOUR


def whole(value: float | None) -> int | float | None:
    """The value, an integer if it is one."""
    return int(value) if value is not None and value.is_integer() else value


def _number(value: float | None) -> float | str | None:
    """A value that is not finite, which JSON cannot hold, as text: nan, inf or -inf."""
    return value if value is None or math.isfinite(value) else str(value)


def _quantity(name: str) -> Callable[[Job], Value]:
    return lambda job: _number(job.quantities.get(name))


def _reported_at(name: str) -> Callable[[Job], Value]:
    return lambda job: whole(job.reported_at.get(name))


def _trials(job: Job) -> int | None:
    return len(job.trials) or None


def _priority(job: Job) -> Value:
    return whole(job.ranking.priority) if job.ranking else None


def _predicted(part: str) -> Callable[[Job], float | None]:
    column = f"predicted_{part}".removesuffix("_value")
    return lambda job: job.columns[column]


def _foreseen(part: str) -> Callable[[Job], float | None]:
    return lambda job: getattr(job.foreseen, part)


FIELDS: tuple[Field[Job], ...] = tuple(
    sorted(
        (
            # Slurm's
            Field("Account", "text", 10, "the account it is charged to", text("account")),
            Field("AllocCPUS", "integer", 10, "CPUs held, or requested", fact("cpus")),
            Field("AllocNodes", "integer", 10, "nodes held, or requested", fact("nodes")),
            Field("Cluster", "text", 10, "the cluster's name", lambda job: job.columns["cluster"]),
            Field("Comment", "text", 14, "its --comment", text("comment")),
            Field("Constraints", "text", 12, "the features it requests", text("features")),
            Field("Elapsed", "span", 10, "the time of its last run, without suspensions", lambda job: job.elapsed),
            Field("ElapsedRaw", "integer", 10, "Elapsed, in seconds", lambda job: int(job.elapsed)),
            Field("Eligible", "time", 19, "when it could first run", fact("eligible"), "Unknown"),
            Field("End", "time", 19, "when it ended", lambda job: job.ended, "Unknown"),
            Field(
                "ExitCode",
                "text",
                8,
                "its exit status, and the signal that ended it",
                OfFacts(exit_code, ("exit_code",)),
            ),
            Field("HetJobID", "integer", 12, "the first job of its heterogeneous job", text("het_id")),
            Field(
                "JobID",
                "text",
                12,
                "its id; ARRAY_ELEMENT of an array",
                OfFacts(shown_id, SHOWN_ID),
                left=True,
            ),
            Field("JobIDRaw", "integer", 12, "its id, a number", fact("job_id"), left=True),
            Field("JobName", "text", 10, "its name", text("name")),
            Field("NCPUS", "integer", 10, "CPUs held, or requested", fact("cpus")),
            Field("NNodes", "integer", 8, "nodes held, or requested", fact("nodes")),
            Field("NodeList", "text", 15, "where it runs or ran", text("node_list")),
            Field("Partition", "text", 10, "its partitions", text("partition")),
            Field("Priority", "integer", 10, "Slurm's priority with the SiteFactor, until it ends", _priority),
            Field("QOS", "text", 10, "its quality of service", text("qos")),
            Field("Reason", "text", 12, "Slurm's reason why it waits", text("reason")),
            Field("ReqMem", "memory", 10, "total memory requested, MiB", fact("memory")),
            Field("Reservation", "text", 20, "the reservation it requests", text("reservation")),
            Field("Restarts", "integer", 8, "how often it was requeued", fact("restarts")),
            Field("Seen", "time", 19, "when slurmplug last saw it", lambda job: job.seen),
            Field("Start", "time", 19, "when it started", lambda job: job.started, "Unknown"),
            Field("State", "text", 10, "Slurm's state", fact("state")),
            Field("Submit", "time", 19, "when it was submitted, or requeued", fact("submit"), "Unknown"),
            Field("Timelimit", "span", 10, "its time limit", fact("time_limit"), "UNLIMITED"),
            Field("UID", "integer", 6, "its user's numeric id", fact("uid")),
            Field("User", "text", 9, "its user", text("user")),
            # its directives
            Field("AllowDowngrade", "text", 14, "--allow-downgrade", _directive(lambda d: d.allow_downgrade)),
            Field("Deadline", "time", 19, "--deadline", _directive(lambda d: d.deadline)),
            Field("GPURange", "text", 8, "--gpus", _directive(_gpu_range)),
            Field("MaxIterations", "integer", 13, "--max-iterations", _directive(lambda d: d.max_iterations)),
            Field("RequireTarget", "text", 13, "--require-target", _directive(lambda d: d.require_target)),
            Field("TrialsToRun", "text", 11, "--trials", _directive(lambda d: d.trials)),
            Field("MLJob", "text", 15, "--ml-job", _directive(lambda d: d.ml_job)),
            Field("StopAt", "text", 10, "--stop", _directive(lambda d: d.stop)),
            Field("Target", "text", 15, "--target", _directive(_target)),
            Field("Type", "text", 12, "--type", _directive(lambda d: d.type)),
            Field("Urgency", "number", 7, "--urgency", _directive(lambda d: d.urgency)),
            Field("Problems", "integer", 8, "directives that are ignored", _directive(lambda d: len(d.problems))),
            # what it reported
            Field("Accuracy", "number", 9, "the last accuracy", _quantity("accuracy")),
            Field("AccuracyAt", "integer", 10, "the iteration of Accuracy", _reported_at("accuracy")),
            Field("Checkpoint", "integer", 10, "the iteration of its last checkpoint", lambda j: whole(j.checkpoint)),
            Field("Iterations", "integer", 10, "the last iteration, counted from 1", lambda job: whole(job.iteration)),
            Field("Loss", "number", 9, "the last loss", _quantity("loss")),
            Field("LossAt", "integer", 10, "the iteration of Loss", _reported_at("loss")),
            Field("Quantity", "text", 10, "the quantity by which it is judged", lambda job: job.quantity),
            Field("Value", "number", 9, "the last value of Quantity", lambda job: _number(job.value)),
            Field("ValueAt", "integer", 10, "the iteration of Value", lambda job: whole(job.value_at)),
            # what was predicted and decided
            Field("Attained", "number", 9, "GPU hours used, in all runs", attained),
            Field("Charge", "number", 9, "Attained at the site's rates, if it has any", _not_charged),
            Field("Diverged", "text", 8, "whether its training has diverged", lambda job: job.diverged),
            Field("Final", "number", 9, "Value after the last iteration, predicted", lambda job: job.final.value),
            Field("FinalLow", "number", 9, "Final's 5 % quantile", lambda job: job.final.low),
            Field("FinalHigh", "number", 9, "Final's 95 % quantile", lambda job: job.final.high),
            Field("GPUs", "integer", 5, "GPUs held, or requested", fact("gpus")),
            Field(
                "GPUType",
                "text",
                10,
                "the type of its GPUs",
                lambda job: ",".join(job.facts.of_gpus.types) or None,
            ),
            Field("Shards", "integer", 6, "shards of GPUs requested", text("shards")),
            Field("Label", "integer", 10, "its SiteFactor", lambda job: whole(job.site_factor)),
            Field("Managed", "text", 7, "whether slurmplug may act on it", lambda job: job.managed),
            Field("Expected", "time", 19, "when Slurm expects it to start, while it waits", lambda job: job.expected),
            Field("Foreseen", "number", 9, "Final, as predicted at half of the iterations", _foreseen("value")),
            Field(
                "ForeseenAt",
                "integer",
                10,
                "the iterations done at that prediction",
                lambda job: whole(job.foreseen_at),
            ),
            Field("ForeseenHigh", "number", 12, "Foreseen's 95 % quantile", _foreseen("high")),
            Field("ForeseenLow", "number", 11, "Foreseen's 5 % quantile", _foreseen("low")),
            Field("Predicted", "span", 10, "its run time, as first predicted", _predicted("value")),
            Field("PredictedHigh", "span", 13, "Predicted's 95 % quantile", _predicted("high")),
            Field("PredictedLow", "span", 12, "Predicted's 5 % quantile", _predicted("low")),
            Field(
                "Rank",
                "number",
                10,
                "the policy's score, as SCORE of `queue`; higher goes first",
                lambda job: job.score,
            ),
            Field("Reach", "share", 7, "probability that Final meets its target", lambda job: job.reach),
            Field("Remaining", "span", 10, "run time left, predicted", lambda job: job.remaining.value),
            Field("RemainingLow", "span", 12, "Remaining's 5 % quantile", lambda job: job.remaining.low),
            Field("RemainingHigh", "span", 13, "Remaining's 95 % quantile", lambda job: job.remaining.high),
            Field("Saved", "integer", 8, "iterations that a stop saved", lambda job: whole(job.saved)),
            Field(
                "Stop", "text", 8, "the rule of its stop: target, optstop, diverged, idle GPUs", lambda job: job.stop
            ),
            Field("Trial", "text", 12, "the trial that it reported last, if several", lambda job: job.trial),
            Field("Trials", "integer", 6, "number of trials that it has reported", _trials),
            Field("Waited", "span", 10, "how long it was eligible and pending", lambda job: job.waited),
        ),
        key=lambda field: field.name.lower(),
    )
)


def charged(field: Field[Any], config: Config) -> Field[Any]:
    """The field with the rates of this configuration, if it depends on them."""
    if field.name != "Charge" or not config.charging.charges:
        return field
    from slurmplug.reports.charging import highest_rate  # noqa: PLC0415  few reports have it

    def charge(job: Job) -> Value:
        rate = highest_rate(job, config)
        return None if rate is None else rate * attained(job)

    return replace(field, value=charge)


ALL_FIELDS: tuple[Field[Any], ...] = tuple(sorted((*FIELDS, *sacct_fields.ONLY), key=lambda field: field.name.lower()))
"""With those that come from sacct."""


def markdown() -> str:
    """The table of fields for `docs/reports.md`."""
    rows = ["| field | in JSON | meaning |", "|---|---|---|"]
    units = {
        "time": "seconds since the epoch",
        "span": "seconds",
        "share": "0 to 1",
        "integer": "number",
        "memory": "MiB",
    }
    rows += [f"| {each.name} | {units.get(each.kind, each.kind)} | {each.about} |" for each in ALL_FIELDS]
    return "\n".join(rows) + "\n"


def generated() -> Generated:
    """The generated part of `docs/reports.md`."""
    begin = "<!-- generated by python -m slurmplug.reports.acct -->"
    return Generated("docs/reports.md", begin, "<!-- end of the generated part -->", f"\n{markdown()}\n")


if __name__ == "__main__":
    page = Path(__file__).parents[2] / generated().path
    page.write_text(generated().renewed(page.read_text()))
