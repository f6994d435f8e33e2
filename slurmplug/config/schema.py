"""The site's configuration: one TOML file, whose mistakes are all reported at once.

The descriptions of the fields are the documentation: `docs/configuration.md` is generated from them.
"""

import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from slurmplug.config.section import Section, setting
from slurmplug.config.serving import Endpoint, Metrics, Web
from slurmplug.config.values import (
    AbsolutePath,
    Count,
    Invalid,
    NonNegative,
    Positive,
    Seconds,
    Share,
    above,
    at_least,
    at_most,
    below,
    finite,
    matching,
)
from slurmplug.errors import ConfigError, advice

DEFAULT_PATH = Path("/etc/slurmplug/slurmplug.toml")
CONFIG_VARIABLE = "SLURMPLUG_CONFIG"
"""The environment variable that names another configuration file."""
LEDGER_VARIABLE = "SLURMPLUG_LEDGER"
"""The environment variable that names another ledger for reports."""


log = logging.getLogger(__name__)
_EXCHANGE = "jobs with directives exchange the places that they have without slurmplug"
REMOVED: Mapping[str, str] = {
    "priority.spacing": _EXCHANGE,
    "priority.top": _EXCHANGE,
    "guardrails.unmanaged_share": _EXCHANGE,
}
"""Keys of earlier versions that are accepted without effect, and why they have none."""
Mode: TypeAlias = Literal["observe", "advise", "act"]
Names: TypeAlias = frozenset[str]
Urgency: TypeAlias = Annotated[float, at_least(0), at_most(10)]


class Modes(Section):
    """What the daemon may do: `observe` records decisions, `advise` also shows them, `act` carries them out."""

    default: Mode = setting("observe", description="for every kind of action that is not set itself")
    rank: Mode | None = setting(None, description="ranking pending jobs by their SiteFactor")
    stop: Mode | None = setting(None, description="stopping jobs at their target")
    resize: Mode | None = setting(None, description="changing the number of GPUs of jobs with --gpus=A..B")
    migrate: Mode | None = setting(None, description="moving running jobs to other nodes")
    preempt: Mode | None = setting(None, description="requeueing running jobs in favour of others")
    admit: Mode = setting(
        "observe", description="admitting jobs with --utility, which site_config/slurmplug.lua must hold at submission"
    )

    def of(self, kind: str) -> Mode:
        """The mode for a kind of action."""
        if kind in ("hold", "release"):
            return self.admit
        own: Mode | None = getattr(self, kind, None)
        return own or self.default


class SlurmSettings(Section):
    """Access to Slurm."""

    conf: AbsolutePath | None = setting(None, description="slurm.conf; if not set, the one that Slurm's commands find")
    bin: AbsolutePath | None = setting(
        None, description="the folder of squeue and scontrol; if not set, they are searched in PATH"
    )
    timeout: Seconds = setting(30.0, description="timeout of a Slurm command in seconds")
    client: Literal["cli", "pyslurm"] = setting(
        "cli",
        description="Slurm's commands, or pyslurm for writing priorities, if it is installed for this release of Slurm",
    )


class Spool(Section):
    """The folder of the jobs' reports and of requests to jobs."""

    path: AbsolutePath = setting(Path("/var/spool/slurmplug"), description="on a file system that every node shares")


class LedgerSettings(Section):
    """The daemon's database."""

    path: AbsolutePath = setting(Path("/var/lib/slurmplug/ledger.db"), description="on a local disk")
    keep_days: Annotated[float, above(0)] = setting(
        400.0, description="days for which ended jobs and their history are kept"
    )
    keep_inputs_days: Annotated[float, above(0)] = setting(
        14.0, description="days for which the inputs of cycles are kept"
    )


class Priority(Section):
    """How ranks are written as Slurm's SiteFactor."""

    compare: Seconds = setting(
        60.0,
        description="least seconds from one comparison with the SiteFactors in Slurm (one sprio) to the next; they are "
        "compared at once after slurmctld was started again, or did not carry out a write",
    )


class Guardrails(Section):
    """Limits on what is done to jobs, under every policy."""

    exclude_users: Names = setting(frozenset(), description="users whose jobs are never changed")
    exclude_accounts: Names = setting(frozenset(), description="accounts whose jobs are never changed")
    exclude_qos: Names = setting(frozenset(), description="QOS whose jobs are never changed")
    exclude_partitions: Names = setting(frozenset(), description="partitions whose jobs are never changed")
    exclude_names: Names = setting(
        frozenset(), description="names of jobs that are never changed, with the wildcards * and ?"
    )
    writes_per_cycle: Count = setting(
        500,
        description="most writes to waiting jobs in a cycle: new sizes first, then priorities, from the head of the "
        "queue",
    )
    size_interval: NonNegative = setting(
        300.0,
        description="least seconds between two changes of a waiting job's size; Slurm's backfill, which plans anew "
        "after each, starts a job that has room well within the default",
    )
    size_change: NonNegative = setting(
        0.25,
        description="least change of a waiting job's size, as a share of its GPUs, if it could start as it is",
    )
    stops_per_cycle: Count = setting(20, description="most jobs requested to stop in a cycle")
    stops_per_hour: Count = setting(200, description="most jobs requested to stop in an hour")
    stops_per_user: Count | None = setting(
        None, description="most jobs of a user requested to stop in an hour; if not set, a fifth of `stops_per_hour`"
    )
    requeues_per_cycle: Count = setting(5, description="most running jobs requeued in a cycle")
    requeues_per_hour: Count = setting(60, description="most running jobs requeued in an hour")
    requeues_per_user: Count | None = setting(
        None, description="most running jobs of a user requeued in an hour; if not set, a fifth of `requeues_per_hour`"
    )
    requeues_per_job: Count = setting(12, description="most requeues of a job in its lifetime")
    admissions_per_cycle: Count = setting(100, description="most jobs admitted in a cycle")
    admissions_per_hour: Count = setting(1_000, description="most jobs admitted in an hour")
    admissions_per_user: Count | None = setting(
        None, description="most jobs of a user admitted in an hour; if not set, a fifth of `admissions_per_hour`"
    )
    requeue_cooldown: NonNegative = setting(
        1_800.0, description="least seconds between two requeues of a job, and from one that found no room to the next"
    )
    requeue_cost: NonNegative = setting(60.0, description="estimated seconds of training lost by a requeue")
    requeue_waste: Annotated[float, at_least(0)] = setting(
        0.1, description="the most of a job's GPU time that its requeues may cost, as a share"
    )
    minimum_run: NonNegative = setting(900.0, description="least seconds that a job runs before it is preempted")
    first_seen: NonNegative = setting(60.0, description="least seconds after a job is first seen until it is requeued")
    size_least: Share = setting(
        0.5,
        description="least size with which a waiting job starts, as a share of the GPUs that it asked for: it may get "
        "more later only by a restart, and without --checkpoint never",
    )
    raise_time_limit: Annotated[float, finite, at_least(1)] = setting(
        1.0,
        description="the most by which the time limit of a job with fewer GPUs is raised, if it would else not end in "
        "time: 2 for twice its own; 1 for never. Never beyond MaxTime of its partitions or MaxWall of its QOS and "
        "associations",
    )
    requeue_before_limit: NonNegative = setting(
        0.0,
        description="seconds before its time limit, beside its grace period and a cycle, at which a job with a "
        "checkpoint that would not end in time is asked to save, to be requeued with its whole limit anew (with "
        "`mode.preempt`); 0 for never",
    )
    urgency: Urgency = setting(10.0, description="the highest --urgency that counts")
    urgency_of: dict[str, Urgency] = setting(
        default_factory=dict, description="the highest --urgency that counts, by account"
    )
    max_wait: Seconds = setting(604_800.0, description="seconds after which a pending job is ranked first")
    max_bypass: Annotated[float, at_least(1)] = setting(
        2.0,
        description="a waiting job is ranked first that would take more than so many times as long as without the jobs "
        "that came later and were put before it; inf for no bound",
    )
    partial_snapshot: Share = setting(
        0.5,
        description="the least share of the live jobs that the next reading must list, alive or ended; else no "
        "commands are sent in that cycle",
    )
    snapshot_age: Seconds = setting(120.0, description="seconds after which a snapshot is too old to act on")
    breaker_failures: Positive = setting(
        5, description="successive cycles without one successful command that open the circuit breaker"
    )
    breaker_rest: Seconds = setting(600.0, description="seconds for which an open circuit breaker only observes")


class Predictors(Section):
    """Forecasts of run times."""

    runtime: Literal["stack", "svr"] = setting(
        "stack", description="by similar jobs and the user's own, or by support vector regression per job type"
    )


class Stop(Section):
    """Stopping a job."""

    grace: Seconds = setting(
        300.0,
        description="grace period in seconds, if --checkpoint gives none; at least twice the time between the job's "
        "reports",
    )
    cancel: bool = setting(
        False, description="cancel a job that did not stop within its grace period; its dependents then never start"
    )
    idle_gpus: Seconds | None = setting(
        None,
        description="seconds for which a job may run on with idle GPUs after its user was sent the notification `idle "
        "GPUs`; then it is stopped, whatever its --stop; if not set, none is",
    )


class Operations(Section):
    """Resizing, moving and preempting running jobs."""

    placement: Literal["off", "exclude", "pin"] = setting(
        "off", description="moving jobs: never, to any other nodes, or to the nodes that the policy chose"
    )
    interval: Seconds = setting(5.0, description="seconds from one cycle to the next while a job is moved")
    start_limit: Seconds = setting(
        300.0, description="seconds that a requeued job may take to start on its reserved nodes"
    )
    watch_limit: Seconds = setting(
        1_800.0, description="seconds within which it must report, to show from which iteration it continued"
    )


class Takeover(Section):
    """Several controllers: a daemon runs on each, and one of them is active."""

    folder: AbsolutePath | None = setting(
        None,
        description="on a file system that the controllers share, for copies of the ledger; if not set, no takeover",
    )
    every: Seconds = setting(300.0, description="seconds from one copy of the ledger to the next")
    patience: Seconds = setting(120.0, description="seconds without a heartbeat after which a daemon counts as dead")


class Promotion(Section):
    """Models of learnt policies, which are candidates until they are promoted (`slurmplug policy`)."""

    gain: Annotated[float, at_least(0), below(1)] | None = setting(
        None,
        description="a model in shadow is promoted without an operator if on every workload on which it was evaluated "
        "against the configured policy its mean JCT is shorter by this share at least (the lower end of the 95% "
        "interval); if not set, never",
    )
    shadow_cycles: Positive = setting(
        1_440, description="and if it decided without an error in so many cycles in shadow, up to the last one"
    )
    fallbacks: Positive = setting(
        10, description="cycles of an hour in which a promoted model could not be followed that end its promotion"
    )


class Charging(Section):
    """What GPU time costs, in a unit of the site's: `Charge` of `slurmplug acct`, and `slurmplug usage`."""

    iterations: NonNegative = setting(
        0.0, description="per GPU hour of a job that runs all its iterations, or says nothing"
    )
    optstop: NonNegative = setting(0.0, description="per GPU hour of a job with --stop=optstop")
    target: NonNegative = setting(0.0, description="per GPU hour of a job with --stop=target")
    urgency: NonNegative = setting(
        0.0, description="added per GPU hour for each unit of --urgency above 5, up to the highest that counts"
    )

    @property
    def charges(self) -> bool:
        """Whether anything is charged."""
        return any((self.iterations, self.optstop, self.target, self.urgency))


NotificationKind: TypeAlias = Literal[
    "stopped", "moved", "resized", "preempted", "rejected", "diverged", "idle GPUs", "deadline"
]


class Notifications(Section):
    """Mail to users, and messages to a web service, of what was done to jobs and of what is wrong with them."""

    mail: Literal["off", "asked", "all"] = setting(
        "off",
        description="by slurm.conf's MailProg: to users of jobs with --notify=on (asked), or of all jobs with "
        "directives but those with --notify=off (all)",
    )
    webhook: Annotated[str, matching(r"(|https?://[!-~]{1,500})", "a URL with http:// or https://")] = setting(
        "",
        description="URL to which each is sent by POST, as a JSON object, whatever --notify says; if empty, none is",
    )
    about: frozenset[NotificationKind] = setting(
        frozenset(get_args(NotificationKind)), description="of these kinds alone"
    )

    @property
    def wanted(self) -> bool:
        """Whether any are sent."""
        return bool(self.about) and (self.mail != "off" or bool(self.webhook))


class Log(Section):
    """The daemon's log."""

    format: Literal["text", "json"] = setting(
        "text",
        description="lines of text; or of JSON, each an object with time, level and message, and for what was done "
        "to a job event, job, user, rule and state",
    )


class Config(Section):
    """The whole configuration."""

    cluster: str = setting("", description="the cluster's name; if empty, slurm.conf's ClusterName")
    policy: str = setting("mlfs", description="the policy: one that `slurmplug status` lists, or FILE.py:CLASS")
    interval: Seconds = setting(60.0, description="seconds from one cycle to the next")
    mode: Modes = Modes()
    slurm: SlurmSettings = SlurmSettings()
    spool: Spool = Spool()
    ledger: LedgerSettings = LedgerSettings()
    priority: Priority = Priority()
    predictors: Predictors = Predictors()
    guardrails: Guardrails = Guardrails()
    stop: Stop = Stop()
    operations: Operations = Operations()
    endpoint: Endpoint = Endpoint()
    metrics: Metrics = Metrics()
    web: Web = Web()
    takeover: Takeover = Takeover()
    promotion: Promotion = Promotion()
    charging: Charging = Charging()
    notifications: Notifications = Notifications()
    log: Log = Log()
    policies: dict[str, dict[str, Any]] = setting(
        default_factory=dict, description="settings of policies, a table for each: [policies.mlfs]"
    )

    def check(self) -> None:
        """Jobs are stopped for idle GPUs only where their users are told. Raises Invalid."""
        told = self.notifications.wanted and "idle GPUs" in self.notifications.about
        if self.stop.idle_gpus is not None and not told:
            raise Invalid.of(
                "stop.idle_gpus stops only jobs whose users were sent a notification: set notifications.mail or "
                "notifications.webhook, with `idle GPUs` in notifications.about"
            )


def load(path: Path) -> Config:
    """Read the configuration file.

    Raises:
        ConfigError: it cannot be read or is not valid; the message names each mistake and the nearest valid key.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}{advice(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def parse(text: str, name: str = "the configuration") -> Config:
    """Like `load`, from the text of a file; `name` is what error messages call it."""
    try:
        return Config.from_table(_without_removed(tomllib.loads(text), name))
    except Invalid as error:
        raise ConfigError("\n  ".join([f"{name} is not valid:", *map(str, error.mistakes)])) from error
    except (ValueError, RecursionError) as error:  # tomllib.TOMLDecodeError, and a number or nesting beyond bounds
        raise ConfigError(f"{name} is not valid TOML: {error}") from error


def _without_removed(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The content without keys of earlier versions that have no effect any more; each is said in the log."""
    for key, why in REMOVED.items():
        section, _, field = key.partition(".")
        inside = content.get(section)
        if isinstance(inside, dict) and field in inside:
            log.warning("%s: %s has no effect any more and can be removed: %s", name, key, why)
            content = {**content, section: {other: value for other, value in inside.items() if other != field}}
    return content
