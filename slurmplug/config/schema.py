"""The site's configuration: one TOML file, whose mistakes are all reported at once.

The descriptions of the fields are the documentation: `docs/configuration.md` is generated from them.
"""

import difflib
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError

from slurmplug.errors import ConfigError

DEFAULT_PATH = Path("/etc/slurmplug/slurmplug.toml")
CONFIG_VARIABLE = "SLURMPLUG_CONFIG"
"""The environment variable that names another configuration file."""
LEDGER_VARIABLE = "SLURMPLUG_LEDGER"
"""The environment variable that names another ledger for reports."""

_LISTEN = r"^(|[A-Za-z0-9.-]{1,253}:[0-9]{1,5}|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5})$"
_URL = r"^(|http://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}/?)$"

_REQUIREMENTS: Mapping[str, str] = {
    "string_type": "must be a text",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "path_type": "must be a path, as a text",
    "frozen_set_type": "must be a list of texts",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
}
"""Plain wording for the errors of pydantic that would name Python's types."""


def _absolute(path: Path) -> Path:
    """A relative path would mean another file to the daemon, the commands and the jobs."""
    if not path.is_absolute():
        raise ValueError(f"must begin with /, not {str(path)!r}")
    return path


def _with_port(address: str) -> str:
    if address and int(address.rstrip("/").rpartition(":")[2]) > 65_535:
        raise ValueError("a port is at most 65535")
    return address


log = logging.getLogger(__name__)
_EXCHANGE = "jobs with directives exchange the places that they have without slurmplug"
REMOVED: Mapping[str, str] = {
    "priority.spacing": _EXCHANGE,
    "priority.top": _EXCHANGE,
    "guardrails.unmanaged_share": _EXCHANGE,
}
"""Keys of earlier versions that are accepted without effect, and why they have none."""
Mode: TypeAlias = Literal["observe", "advise", "act"]
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AbsolutePath: TypeAlias = Annotated[Path, Strict(False), AfterValidator(_absolute)]
Names: TypeAlias = Annotated[frozenset[str], Strict(False)]


class Section(BaseModel):
    """A table of the file. Unknown keys are errors; texts and truth values are not accepted as numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Modes(Section):
    """What the daemon may do: `observe` records decisions, `advise` also shows them, `act` carries them out."""

    default: Mode = Field("observe", description="for every kind of action that is not set itself")
    rank: Mode | None = Field(None, description="ranking pending jobs by their SiteFactor")
    stop: Mode | None = Field(None, description="stopping jobs at their target")
    resize: Mode | None = Field(None, description="changing the number of GPUs of jobs with --gpus=A..B")
    migrate: Mode | None = Field(None, description="moving running jobs to other nodes")
    preempt: Mode | None = Field(None, description="requeueing running jobs in favour of others")
    admit: Mode = Field(
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

    conf: AbsolutePath | None = Field(None, description="slurm.conf; if not set, the one that Slurm's commands find")
    bin: AbsolutePath | None = Field(
        None, description="the folder of squeue and scontrol; if not set, they are searched in PATH"
    )
    timeout: Seconds = Field(30.0, description="timeout of a Slurm command in seconds")
    client: Literal["cli", "pyslurm"] = Field(
        "cli",
        description="Slurm's commands, or pyslurm for writing priorities, if it is installed for this release of Slurm",
    )


class Spool(Section):
    """The folder of the jobs' reports and of requests to jobs."""

    path: AbsolutePath = Field(Path("/var/spool/slurmplug"), description="on a file system that every node shares")


class LedgerSettings(Section):
    """The daemon's database."""

    path: AbsolutePath = Field(Path("/var/lib/slurmplug/ledger.db"), description="on a local disk")
    keep_days: Annotated[float, Field(gt=0)] = Field(
        400.0, description="days for which ended jobs and their history are kept"
    )
    keep_inputs_days: Annotated[float, Field(gt=0)] = Field(
        14.0, description="days for which the full inputs of a cycle with commands are kept"
    )


class Priority(Section):
    """How ranks are written as Slurm's SiteFactor."""

    compare: Seconds = Field(
        60.0,
        description="least seconds from one comparison with the SiteFactors in Slurm (one sprio) to the next; they are "
        "compared at once after slurmctld was started again, or did not carry out a write",
    )


class Guardrails(Section):
    """Limits on what is done to jobs, under every policy."""

    exclude_users: Names = Field(frozenset(), description="users whose jobs are never changed")
    exclude_accounts: Names = Field(frozenset(), description="accounts whose jobs are never changed")
    exclude_qos: Names = Field(frozenset(), description="QOS whose jobs are never changed")
    exclude_partitions: Names = Field(frozenset(), description="partitions whose jobs are never changed")
    exclude_names: Names = Field(
        frozenset(), description="names of jobs that are never changed, with the wildcards * and ?"
    )
    writes_per_cycle: Annotated[int, Field(ge=0)] = Field(
        500,
        description="most writes to waiting jobs in a cycle: new sizes first, then priorities, from the head of the "
        "queue",
    )
    size_interval: NonNegative = Field(
        300.0,
        description="least seconds between two changes of a waiting job's size; Slurm's backfill, which plans anew "
        "after each, starts a job that has room well within the default",
    )
    size_change: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.25,
        description="least change of a waiting job's size, as a share of its GPUs, if it could start as it is",
    )
    stops_per_cycle: Annotated[int, Field(ge=0)] = Field(20, description="most jobs requested to stop in a cycle")
    stops_per_hour: Annotated[int, Field(ge=0)] = Field(200, description="most jobs requested to stop in an hour")
    stops_per_user: Annotated[int, Field(ge=0)] | None = Field(
        None, description="most jobs of a user requested to stop in an hour; if not set, a fifth of `stops_per_hour`"
    )
    requeues_per_cycle: Annotated[int, Field(ge=0)] = Field(5, description="most running jobs requeued in a cycle")
    requeues_per_hour: Annotated[int, Field(ge=0)] = Field(60, description="most running jobs requeued in an hour")
    requeues_per_user: Annotated[int, Field(ge=0)] | None = Field(
        None, description="most running jobs of a user requeued in an hour; if not set, a fifth of `requeues_per_hour`"
    )
    requeues_per_job: Annotated[int, Field(ge=0)] = Field(12, description="most requeues of a job in its lifetime")
    admissions_per_cycle: Annotated[int, Field(ge=0)] = Field(100, description="most jobs admitted in a cycle")
    admissions_per_hour: Annotated[int, Field(ge=0)] = Field(1_000, description="most jobs admitted in an hour")
    admissions_per_user: Annotated[int, Field(ge=0)] | None = Field(
        None, description="most jobs of a user admitted in an hour; if not set, a fifth of `admissions_per_hour`"
    )
    requeue_cooldown: NonNegative = Field(1_800.0, description="least seconds between two requeues of a job")
    requeue_cost: NonNegative = Field(60.0, description="estimated seconds of training lost by a requeue")
    requeue_waste: Annotated[float, Field(ge=0)] = Field(
        0.1, description="the most of a job's GPU time that its requeues may cost, as a share"
    )
    minimum_run: NonNegative = Field(900.0, description="least seconds that a job runs before it is preempted")
    first_seen: NonNegative = Field(60.0, description="least seconds after a job is first seen until it is requeued")
    size_least: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5,
        description="least size with which a waiting job starts, as a share of the GPUs that it asked for: it may get "
        "more later only by a restart, and without --checkpoint never",
    )
    raise_time_limit: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        1.0,
        description="the most by which the time limit of a job with fewer GPUs is raised, if it would else not end in "
        "time: 2 for twice its own; 1 for never",
    )
    urgency: Annotated[float, Field(ge=0, le=10)] = Field(10.0, description="the highest --urgency that counts")
    urgency_of: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(
        default_factory=dict, description="the highest --urgency that counts, by account"
    )
    max_wait: Seconds = Field(604_800.0, description="seconds after which a pending job is ranked first")
    partial_snapshot: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5,
        description="the least share of the live jobs that the next snapshot must hold; else no commands are sent "
        "in that cycle",
    )
    snapshot_age: Seconds = Field(120.0, description="seconds after which a snapshot is too old to act on")
    breaker_failures: Annotated[int, Field(gt=0)] = Field(
        5, description="successive cycles without one successful command that open the circuit breaker"
    )
    breaker_rest: Seconds = Field(600.0, description="seconds for which an open circuit breaker only observes")


class Predictors(Section):
    """Forecasts of run times."""

    runtime: Literal["stack", "svr"] = Field(
        "stack", description="by similar jobs and the user's own, or by support vector regression per job type"
    )


class Stop(Section):
    """Stopping a job."""

    grace: Seconds = Field(
        300.0,
        description="grace period in seconds, if --checkpoint gives none; at least twice the time between the job's "
        "reports",
    )
    cancel: bool = Field(
        False, description="cancel a job that did not stop within its grace period; its dependents then never start"
    )


class Operations(Section):
    """Resizing, moving and preempting running jobs."""

    placement: Literal["off", "exclude", "pin"] = Field(
        "off", description="moving jobs: never, to any other nodes, or to the nodes that the policy chose"
    )
    interval: Seconds = Field(5.0, description="seconds from one cycle to the next while a job is moved")
    start_limit: Seconds = Field(
        300.0, description="seconds that a requeued job may take to start on its reserved nodes"
    )
    watch_limit: Seconds = Field(
        1_800.0, description="seconds within which it must report, to show from which iteration it continued"
    )


class Endpoint(Section):
    """Reports for users on login nodes: the daemon serves them, and commands that cannot read the ledger ask it."""

    listen: Annotated[str, AfterValidator(_with_port)] = Field(
        "",
        pattern=_LISTEN,
        description="HOST:PORT to listen on, [ADDRESS]:PORT for IPv6; if empty, no reports are served",
    )
    url: Annotated[str, AfterValidator(_with_port)] = Field(
        "", pattern=_URL, description="http://CONTROLLER:PORT, the endpoint that commands use"
    )
    munge_socket: AbsolutePath | None = Field(None, description="munged's socket; if not set, its default")
    requests_per_minute: Annotated[int, Field(gt=0)] = Field(
        60, description="most requests of a user per minute, also at once"
    )


class Takeover(Section):
    """Several controllers: a daemon runs on each, and one of them is active."""

    folder: AbsolutePath | None = Field(
        None,
        description="on a file system that the controllers share, for copies of the ledger; if not set, no takeover",
    )
    every: Seconds = Field(300.0, description="seconds from one copy of the ledger to the next")
    patience: Seconds = Field(120.0, description="seconds without a heartbeat after which a daemon counts as dead")


class Config(Section):
    """The whole configuration."""

    cluster: str = Field("", description="the cluster's name; if empty, slurm.conf's ClusterName")
    policy: str = Field("mlfs", description="the policy: one that `slurmplug status` lists, or FILE.py:CLASS")
    interval: Seconds = Field(60.0, description="seconds from one cycle to the next")
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
    takeover: Takeover = Takeover()
    policies: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="settings of policies, a table for each: [policies.mlfs]"
    )


def load(path: Path) -> Config:
    """Read the configuration file.

    Raises:
        ConfigError: it cannot be read or is not valid; the message names each mistake and the nearest valid key.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def parse(text: str, name: str = "the configuration") -> Config:
    """Like `load`, from the text of a file; `name` is what error messages call it."""
    try:
        return Config.model_validate(_without_removed(tomllib.loads(text), name))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError("\n".join([f"{name} is not valid:", *map(_mistake, error.errors())])) from error


def _without_removed(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The content without keys of earlier versions that have no effect any more; each is said in the log."""
    for key, why in REMOVED.items():
        section, _, field = key.partition(".")
        inside = content.get(section)
        if isinstance(inside, dict) and field in inside:
            log.warning("%s: %s has no effect any more and can be removed: %s", name, key, why)
            content = {**content, section: {other: value for other, value in inside.items() if other != field}}
    return content


def requirement(error: Any) -> str:
    """What one of pydantic's errors (`ValidationError.errors()`) requires of a value: "must be a number"."""
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return _REQUIREMENTS.get(error["type"], message)


def _mistake(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    section: Any = Config
    for step in error["loc"][:-1]:
        inner = section.model_fields[step].annotation
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            break
        section = inner
    if error["type"] == "string_pattern_mismatch":
        return f"  {where}: expected {section.model_fields[error['loc'][-1]].description}"
    if error["type"] != "extra_forbidden":
        return f"  {where}: {requirement(error)}"
    word = str(error["loc"][-1])
    near = difflib.get_close_matches(word, section.model_fields, n=1)
    return f"  {where}: unknown key" + (
        f", did you mean {near[0]}?" if near else f"; known: {', '.join(section.model_fields)}"
    )


def documented(section: type[Section] = Config, prefix: str = "") -> list[tuple[str, str, str, str]]:
    """Every key as (dotted name, type, default, description), in the order of the file."""
    rows = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            rows += documented(inner, f"{prefix}{name}.")
        else:
            default = field.get_default(call_default_factory=True)
            rows.append((prefix + name, _type_name(inner), _toml(default), field.description or ""))
    return rows


def _type_name(annotation: Any) -> str:
    words = [word for word in get_args(annotation) if isinstance(word, str)]
    if words:
        return " | ".join(words)
    inner = [a for a in get_args(annotation) if a is not type(None)]
    if inner and type(None) in get_args(annotation):
        return _type_name(inner[0])
    if getattr(annotation, "__origin__", None) is frozenset:
        return "list of texts"
    if getattr(annotation, "__origin__", None) is dict:
        return "tables" if get_args(annotation)[1] == dict[str, Any] else "table"
    if getattr(annotation, "__metadata__", None):
        return _type_name(annotation.__origin__)
    return {str: "text", bool: "true | false", int: "integer", float: "number", Path: "path"}.get(
        annotation, str(annotation)
    )


def _toml(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, frozenset):
        return "[]"
    if isinstance(value, dict):
        return ""
    if isinstance(value, str | Path):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)
