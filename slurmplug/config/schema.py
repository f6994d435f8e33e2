"""The site's configuration: one TOML file, whose mistakes are all reported at once.

The descriptions of the fields are the documentation: `docs/configuration.md` is generated from them.
"""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

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
"""The wording of those of pydantic's errors that name types of Python."""


def _absolute(path: Path) -> Path:
    """A relative path would mean another file to the daemon, the commands and the jobs."""
    if not path.is_absolute():
        raise ValueError(f"must begin with /, not {str(path)!r}")
    return path


def _with_port(address: str) -> str:
    if address and int(address.rstrip("/").rpartition(":")[2]) > 65_535:
        raise ValueError("a port is at most 65535")
    return address


Mode: TypeAlias = Literal["observe", "advise", "act"]
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NoLess: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Place: TypeAlias = Annotated[Path, Strict(False), AfterValidator(_absolute)]
Names: TypeAlias = Annotated[frozenset[str], Strict(False)]


class Section(BaseModel):
    """A table of the file. Unknown keys are errors; texts and truth values are not accepted as numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Modes(Section):
    """What the daemon may do: `observe` records, `advise` also gives notice, `act` does it."""

    default: Mode = Field("observe", description="for every kind of action without a key of its own")
    rank: Mode | None = Field(None, description="for the priorities of pending jobs")
    stop: Mode | None = Field(None, description="for stopping jobs at their target")
    resize: Mode | None = Field(None, description="for giving jobs with --gpus=A..B other numbers of GPUs")
    migrate: Mode | None = Field(None, description="for moving running jobs to other nodes")
    preempt: Mode | None = Field(None, description="for putting running jobs back into the queue")
    admit: Mode = Field(
        "observe", description="for admission of jobs with --utility, which site_config/slurmplug.lua has to hold"
    )

    def of(self, kind: str) -> Mode:
        """The mode for a kind of action."""
        if kind in ("hold", "release"):
            return self.admit
        own: Mode | None = getattr(self, kind, None)
        return own or self.default


class Slurm(Section):
    """How Slurm is reached."""

    conf: Place | None = Field(None, description="slurm.conf; the one that Slurm finds by itself where not set")
    bin: Place | None = Field(None, description="the folder of squeue and scontrol; searched in PATH where not set")
    timeout: Seconds = Field(30.0, description="seconds that one command of Slurm may take")
    client: Literal["cli", "pyslurm"] = Field(
        "cli", description="its commands, or pyslurm for what that can do, where it is installed for this Slurm"
    )


class Spool(Section):
    """The folder of progress reports and of requests to jobs."""

    path: Place = Field(Path("/var/spool/slurmplug"), description="on a file system that every node shares")


class LedgerFile(Section):
    """The ledger, where the daemon keeps what it did and why."""

    path: Place = Field(Path("/var/lib/slurmplug/ledger.db"), description="on a local disk")
    keep_days: Annotated[float, Field(gt=0)] = Field(
        400.0, description="days that ended jobs and their history are kept"
    )
    keep_inputs_days: Annotated[float, Field(gt=0)] = Field(
        14.0, description="days that the full inputs of a cycle with commands are kept"
    )


class Priority(Section):
    """How scores become Slurm's SiteFactor."""

    spacing: Annotated[int, Field(gt=0)] | None = Field(
        None, description="distance between neighbours; where not set, what waits is spread over half of the range"
    )
    top: Annotated[int, Field(gt=0, le=2_147_483_645)] | None = Field(
        None, description="the highest SiteFactor; half of the sum of the site's PriorityWeight* where not set"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.spacing is not None and self.top is not None and self.spacing > self.top:
            raise ValueError(f"spacing {self.spacing} is more than top {self.top}")
        return self


class Guardrails(Section):
    """The limits on every plan, whichever policy made it."""

    exclude_users: Names = Field(frozenset(), description="users whose jobs are left alone")
    exclude_accounts: Names = Field(frozenset(), description="likewise")
    exclude_qos: Names = Field(frozenset(), description="likewise")
    exclude_partitions: Names = Field(frozenset(), description="likewise")
    exclude_names: Names = Field(frozenset(), description="job names, with * and ? as in file names")
    writes_per_cycle: Annotated[int, Field(ge=0)] = Field(500, description="priorities rewritten in one cycle")
    stops_per_cycle: Annotated[int, Field(ge=0)] = Field(20, description="jobs requested to stop in one cycle")
    stops_per_hour: Annotated[int, Field(ge=0)] = Field(200, description="jobs requested to stop in one hour")
    requeues_per_cycle: Annotated[int, Field(ge=0)] = Field(5, description="running jobs requeued in one cycle")
    requeues_per_hour: Annotated[int, Field(ge=0)] = Field(60, description="running jobs requeued in one hour")
    requeues_per_user: Annotated[int, Field(ge=0)] = Field(12, description="likewise, of one user")
    requeues_per_job: Annotated[int, Field(ge=0)] = Field(12, description="times that a job is requeued in its life")
    requeue_cooldown: NoLess = Field(1_800.0, description="seconds until a job is requeued again")
    requeue_cost: NoLess = Field(60.0, description="seconds that a requeue costs a job, in which its GPUs do not train")
    requeue_waste: Annotated[float, Field(ge=0)] = Field(
        0.1, description="the share of a job's GPU time that its requeues may cost"
    )
    minimum_run: NoLess = Field(900.0, description="seconds that a job runs before it is preempted")
    first_seen: NoLess = Field(60.0, description="seconds after it is first seen until a job is requeued")
    urgency: Annotated[float, Field(ge=0, le=10)] = Field(10.0, description="the most that --urgency counts for")
    urgency_of: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(
        default_factory=dict, description="the same, by account"
    )
    max_wait: Seconds = Field(
        604_800.0, description="seconds that a job waits before it goes to the front of the queue"
    )
    unmanaged_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="of the waiting jobs, the share that jobs without directives are at least: no more others are "
        "put before them; 0: no such limit",
    )
    partial_snapshot: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="the share of the jobs alive that must be in the next snapshot; one with fewer is not acted on"
    )
    snapshot_age: Seconds = Field(120.0, description="seconds after which a snapshot is too old to act on")
    breaker_failures: Annotated[int, Field(gt=0)] = Field(
        5, description="cycles in a row of whose commands none succeeded, which open the breaker"
    )
    breaker_rest: Seconds = Field(600.0, description="seconds that an open breaker only observes")


class Predictors(Section):
    """How run times are predicted."""

    runtime: Literal["stack", "svr"] = Field(
        "stack",
        description="run times: by similar jobs and the user's own, or by support vector regression per type",
    )


class Stop(Section):
    """How a job is stopped."""

    grace: Seconds = Field(
        300.0,
        description="seconds from the request to the next step, where --checkpoint names none; at least twice the time "
        "between the job's reports",
    )
    cancel: bool = Field(True, description="cancel a job that did not stop within its grace period")


class Operations(Section):
    """How running jobs are resized, moved and preempted."""

    placement: Literal["off", "exclude", "pin"] = Field(
        "off",
        description="moving jobs: not at all, off their present nodes, or to the nodes that the policy names",
    )
    interval: Seconds = Field(5.0, description="seconds from one cycle to the next while a job is moved")
    start_limit: Seconds = Field(300.0, description="seconds that a requeued job may take to start in its place")
    watch_limit: Seconds = Field(
        1_800.0, description="seconds in which it has to report the iteration from which it resumed"
    )


class Endpoint(Section):
    """Reports for users on login nodes: the daemon serves them, and commands that cannot read the ledger ask it."""

    listen: Annotated[str, AfterValidator(_with_port)] = Field(
        "", pattern=_LISTEN, description="HOST:PORT, [ADDRESS]:PORT of IPv6; no endpoint where empty"
    )
    url: Annotated[str, AfterValidator(_with_port)] = Field(
        "", pattern=_URL, description="http://CONTROLLER:PORT, where commands ask"
    )
    munge_socket: Place | None = Field(None, description="munged's socket; the one of its package where not set")
    requests_per_minute: Annotated[int, Field(gt=0)] = Field(60, description="of one user; as many at once")


class Takeover(Section):
    """High availability: the daemon runs on two controllers, and one of them acts."""

    folder: Place | None = Field(
        None, description="on a file system that the controllers share: copies of the ledger; no takeover where not set"
    )
    every: Seconds = Field(300.0, description="seconds from one copy to the next")
    patience: Seconds = Field(120.0, description="seconds without a heartbeat after which a daemon counts as dead")


class Config(Section):
    """The whole file."""

    cluster: str = Field("", description="the cluster's name; slurm.conf's ClusterName where empty")
    policy: str = Field(
        "mlfs", description="the policy that decides: one that `slurmplug status` lists, or FILE.py:CLASS"
    )
    interval: Seconds = Field(60.0, description="seconds from one cycle to the next")
    mode: Modes = Modes()
    slurm: Slurm = Slurm()
    spool: Spool = Spool()
    ledger: LedgerFile = LedgerFile()
    priority: Priority = Priority()
    predictors: Predictors = Predictors()
    guardrails: Guardrails = Guardrails()
    stop: Stop = Stop()
    operations: Operations = Operations()
    endpoint: Endpoint = Endpoint()
    takeover: Takeover = Takeover()
    policies: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="settings of the policies, a table each: [policies.mlfs]"
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
        return Config.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError("\n".join([f"{name} is not valid:", *map(_mistake, error.errors())])) from error


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
