"""`slurmplug sandbox`: a throwaway Slurm cluster on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from slurmplug.sandbox import ClusterSpec, Node, Sandbox, SandboxError

_FOLDER = click.argument("folder", type=click.Path(path_type=Path), default=Path(".sandbox"))


@click.group()
def sandbox() -> None:
    """Start and stop a throwaway Slurm cluster on this machine (needs root and Debian's packages)."""


@sandbox.command()
@_FOLDER
@click.option("--nodes", type=click.IntRange(1), default=4, show_default=True, help="Number of nodes: n1, n2, ...")
@click.option("--gpus", type=click.IntRange(0), default=4, show_default=True, help="GPUs of a node (fake devices).")
@click.option("--gpu-type", default="", help="Type of the GPUs, e.g. a100.  [default: none]")
@click.option("--cpus", type=click.IntRange(1), default=8, show_default=True, help="CPUs of a node.")
@click.option("--memory", type=click.IntRange(1), default=4000, show_default=True, help="Memory of a node in MB.")
@click.option(
    "--slurm",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    metavar="PREFIX",
    help="Run the Slurm that is installed below PREFIX.  [default: the system's]",
)
def up(*, folder: Path, nodes: int, gpus: int, gpu_type: str, cpus: int, memory: int, slurm: Path | None) -> None:
    """Start a cluster with all of its state in FOLDER (default: .sandbox)."""
    node = Node(gpus=gpus, gpu_type=gpu_type, cpus=cpus, memory=memory)
    cluster = Sandbox(ClusterSpec(nodes=(node,) * nodes, slurm=slurm), folder)
    with _cleanly():
        cluster.up()
    if cluster.folder != folder.absolute():
        click.echo(
            f"# Not every user can enter {folder.absolute()}: the state is in {cluster.folder}, with a link there."
        )
    click.echo(f"# {cluster.name} runs. Operator: {cluster.operator}. Researchers: {', '.join(cluster.researchers)}.")
    for name in ("SLURM_CONF", "SLURMPLUG_SPOOL"):
        click.echo(f"export {name}={cluster.env(cluster.operator)[name]}")
    if slurm:
        click.echo(f"export PATH={slurm}/sbin:{slurm}/bin:$PATH")
    click.echo(f"# Stop it with: slurmplug sandbox down {folder}")


@sandbox.command()
@_FOLDER
@click.option("--keep-logs", is_flag=True, help="Leave the daemons' logs in FOLDER.")
def down(*, folder: Path, keep_logs: bool) -> None:
    """Stop the cluster in FOLDER (default: .sandbox) and everything that runs in it."""
    with _cleanly():
        Sandbox.attach(folder).down(keep_logs=keep_logs)


@sandbox.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(".demo"))
def demo(*, folder: Path) -> None:
    """Watch slurmplug serve a cluster with training jobs; results are written to FOLDER (default: .demo)."""
    from slurmplug.sandbox.demo import run  # noqa: PLC0415 the ledger and its numpy take a second to load

    try:
        with _cleanly():
            run(folder)
    except KeyboardInterrupt as error:
        raise _failure("interrupted; everything it started was stopped", error) from error


@contextmanager
def _cleanly() -> Iterator[None]:
    """Errors of the sandbox and of its folder as messages, without a traceback."""
    try:
        yield
    except SandboxError as error:
        raise _failure(str(error), error) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise _failure(f"{where}{error.strerror}; a sandbox needs root and an empty folder", error) from error


def _failure(message: str, error: BaseException) -> click.ClickException:
    return click.ClickException("\n".join([message, *getattr(error, "__notes__", ())]))
