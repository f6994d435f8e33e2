"""`slurmplug policy`: models of learnt policies, from a file to acting and back."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from policies.model import Model
from slurmplug.commands.opened import open_ledger, open_ledger_to_write
from slurmplug.commands.options import config_of, emit, ledger_options, user_name
from slurmplug.config import model_files, policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.cycle.outcomes import FEWEST
from slurmplug.errors import ConfigError, DataError, UsageError
from slurmplug.ledger import model_outcomes, policy_models
from slurmplug.ledger.policy_models import Decided, KeptModel, ModelEvaluation, Role
from slurmplug.reports import model_view

_MODEL = click.argument("digits", metavar="MODEL")
_REASON = click.argument("reason", nargs=-1)
_ROLE_NAMES: Mapping[Role, str] = {"candidate": "a candidate", "shadow": "in shadow", "acting": "promoted"}


@click.group()
def policy() -> None:
    """Models of learnt policies: candidates until they are promoted, and again once they are demoted."""


@policy.command(name="list")
@ledger_options
def list_models(*, config_path: Path, ledger_path: Path | None) -> None:
    """The models in the ledger, what happened to each, and how it was evaluated."""
    with open_ledger(config_path, ledger_path) as ledger:
        kept = policy_models.models(ledger)
        emit(_table(kept))
        for each in kept:
            emit(["", *_history(each, policy_models.events(ledger, each.digest))])
            for made in policy_models.evaluations(ledger, each.digest):
                emit(f"  {line}" for line in model_view.evaluation_lines(made))


@policy.command()
@click.argument("file", type=click.Path(path_type=Path))
@ledger_options
def add(*, file: Path, config_path: Path, ledger_path: Path | None) -> None:
    """Keep the model in FILE, which `slurmplug train` wrote, as a candidate; or, by the name of its policy, one that
    slurmplug comes with."""
    named = str(file) in policy_names.names() and not file.exists()
    shipped = model_files.shipped(str(file)) if named else None
    data = model_files.encode(shipped) if shipped else model_files.content(file)
    model = _require_usable(data, str(file), config_of(config_path, ledger_path))
    with open_ledger_to_write(config_path, ledger_path) as ledger:
        new = policy_models.add(ledger, model, data, Decided(user_name(), time.time()))
        kept = policy_models.find(ledger, model.digest)
    emit([f"{table.printable(kept.name)}: {'added, as a candidate' if new else f'already there, {kept.role}'}"])


@policy.command()
@_MODEL
@click.option("--cluster", required=True, metavar="NxG", help="Nodes and GPUs on each: 16x4, or 8x4+2x8.")
@click.option(
    "--on",
    "names",
    multiple=True,
    metavar="WORKLOAD",
    help="A workload of `simulate`; may be repeated. Default: the ledger's own jobs.",
)
@click.option(
    "--seed", "seeds", multiple=True, type=click.IntRange(0), help="May be repeated. Default: 0 to 4. At least two."
)
@click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs of each workload.")
@ledger_options
def evaluate(
    *,
    digits: str,
    cluster: str,
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    jobs: int | None,
    config_path: Path,
    ledger_path: Path | None,
) -> None:
    """Simulate MODEL and the configured policy side by side, and keep by how much they differ.

    A generated workload is drawn by each seed; a recorded one is cut into as many parts as there are seeds.
    """
    from slurmplug.rl.training_workloads import FIRST_SEED  # noqa: PLC0415  simulations take a second to load
    from slurmplug.sim.experiment import evaluation  # noqa: PLC0415

    config, chosen = config_of(config_path, ledger_path), tuple(dict.fromkeys(seeds or range(5)))
    if len(chosen) < 2:
        raise UsageError("one seed gives no confidence interval: name at least two with --seed, or none for 0 to 4")
    if max(chosen) >= FIRST_SEED:
        raise UsageError(f"seeds from {FIRST_SEED} on are for training: a model is judged by lower ones")
    with open_ledger_to_write(config_path, ledger_path) as ledger:
        kept = policy_models.find(ledger, digits)
        configured = policy_registry.policy(config)
        model = _require_usable(policy_models.content(ledger, kept.digest), kept.name, config)
        candidate = policy_registry.promoted(config, model, configured)
        for name in names or (f"ledger:{ledger_path or config.ledger.path}",):
            of_seeds = evaluation.workloads(name, chosen, jobs)
            figures = evaluation.evaluate(
                of_seeds, candidate, configured, config, cluster=cluster, on_run=_show_run, on_errors=_show_errors
            )
            described = f"{name}, the first {jobs} jobs" if jobs else name
            made = ModelEvaluation(time.time(), user_name(), configured.name, described, cluster, chosen, figures)
            policy_models.keep_evaluation(ledger, kept.digest, made)
            emit(model_view.evaluation_lines(made))


def _show_run(policy: str, seed: int) -> None:
    click.echo(f"{policy}, seed {seed}", err=True)


def _show_errors(policy: str, seed: int, errors: Sequence[str]) -> None:
    for line in model_view.not_followed(policy, seed, errors):
        click.echo(line, err=True)


@policy.command()
@_MODEL
@ledger_options
def shadow(*, digits: str, config_path: Path, ledger_path: Path | None) -> None:
    """Have MODEL decide beside the acting policy, without any effect, from the daemon's next cycle on."""
    _give("shadow", digits, (), config_path, ledger_path)


@policy.command()
@_MODEL
@_REASON
@ledger_options
def promote(*, digits: str, reason: tuple[str, ...], config_path: Path, ledger_path: Path | None) -> None:
    """Let MODEL decide, in place of the configured policy, from the daemon's next cycle on. REASON is kept."""
    with open_ledger(config_path, ledger_path) as ledger:
        kept = policy_models.find(ledger, digits)
        in_shadow = model_outcomes.record(ledger, kept.digest, "shadow") if kept.role == "shadow" else None
    _give("acting", digits, reason, config_path, ledger_path)
    if in_shadow and in_shadow.errors:
        emit([model_view.failed_in_shadow(in_shadow)])
    configured = config_of(config_path, ledger_path).policy
    with open_ledger(config_path, ledger_path) as ledger:
        ended = model_outcomes.ended_jobs(ledger, configured)
    if ended < FEWEST:
        emit([model_view.not_compared(configured, ended, FEWEST)])


@policy.command()
@_MODEL
@_REASON
@ledger_options
def demote(*, digits: str, reason: tuple[str, ...], config_path: Path, ledger_path: Path | None) -> None:
    """Make MODEL a candidate again, whether it acts or is in shadow, from the daemon's next cycle on."""
    _give("candidate", digits, reason, config_path, ledger_path)


def _give(role: Role, digits: str, reason: Sequence[str], config_path: Path, ledger_path: Path | None) -> None:
    """Give a model a role, if it can decide here."""
    with open_ledger_to_write(config_path, ledger_path) as ledger:
        kept = policy_models.find(ledger, digits)
        if role != "candidate":
            data = policy_models.content(ledger, kept.digest)
            _require_usable(data, kept.name, config_of(config_path, ledger_path))
        given = policy_models.set_role(ledger, kept, role, Decided(user_name(), time.time(), " ".join(reason)))
    now = "from the daemon's next cycle on" if given else "as before"
    emit([f"{kept.name}: {_ROLE_NAMES[role]}, {now}"])


def _require_usable(data: bytes, name: str, config: Config) -> Model:
    """The model in these bytes. Raises DataError where this slurmplug cannot decide by it."""
    model = model_files.parse(data, name)
    try:
        policy_registry.with_model(config, model)
    except ConfigError as error:
        raise DataError(f"model {name} is not used: {error}") from error
    return model


def _table(kept: Sequence[KeptModel]) -> list[str]:
    return [text.rstrip() for text in table.format_lines(_FIELDS, table.columns(_FIELDS, kept), rule=False, fit=True)]


def _history(model: KeptModel, events: Sequence[policy_models.ModelEvent]) -> Iterator[str]:
    """What happened to a model."""
    yield f"{table.printable(model.name)}:"
    yield from (f"  {model_view.event_line(each)}" for each in events)


_FIELDS: Sequence[Field[KeptModel]] = (
    Field("MODEL", "text", 12, "", lambda model: model.digest[:12], left=True),
    Field("POLICY", "text", 24, "", lambda model: model.policy, left=True),
    Field("VERSION", "integer", 9, "", lambda model: model.version),
    Field("ROLE", "text", 9, "", lambda model: model.role, left=True),
    Field("ADDED", "time", 19, "", lambda model: model.added),
    Field("BY", "text", 16, "", lambda model: model.added_by, left=True),
    Field("TRAINED ON", "text", 24, "", lambda model: model.facts.get("workload"), "-", left=True),
)
