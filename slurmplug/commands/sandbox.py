"""`slurmplug sandbox`: a throwaway real Slurm to try things on."""

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
def up(*, folder: Path, nodes: int, gpus: int, gpu_type: str, cpus: int, memory: int) -> None:
    """Start a cluster with all of its state in FOLDER (default: .sandbox)."""
    node = Node(gpus=gpus, gpu_type=gpu_type, cpus=cpus, memory=memory)
    cluster = Sandbox(ClusterSpec(nodes=(node,) * nodes), folder)
    with _told():
        cluster.up()
    if cluster.folder != folder.absolute():
        click.echo(
            f"# Not every user can enter {folder.absolute()}: the state is in {cluster.folder}, and a link there."
        )
    click.echo(f"# {cluster.name} runs. Operator: {cluster.operator}. Researchers: {', '.join(cluster.researchers)}.")
    for name in ("SLURM_CONF", "SLURMPLUG_SPOOL"):
        click.echo(f"export {name}={cluster.env(cluster.operator)[name]}")
    click.echo(f"# Stop it with: slurmplug sandbox down {folder}")


@sandbox.command()
@_FOLDER
@click.option("--keep-logs", is_flag=True, help="Leave the daemons' logs in FOLDER.")
def down(*, folder: Path, keep_logs: bool) -> None:
    """Stop the cluster in FOLDER (default: .sandbox) and everything that runs in it."""
    with _told():
        Sandbox.attach(folder).down(keep_logs=keep_logs)


@sandbox.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(".demo"))
def demo(*, folder: Path) -> None:
    """Watch slurmplug serve a cluster and its training jobs; results come to FOLDER (default: .demo)."""
    from slurmplug.sandbox.demo import run  # noqa: PLC0415 the ledger and its numpy take a second to load

    try:
        with _told():
            run(folder)
    except KeyboardInterrupt as error:
        raise _failure("interrupted; all that it started has ended", error) from error


@contextmanager
def _told() -> Iterator[None]:
    """What went wrong, and no traceback; so also where a folder cannot be used."""
    try:
        yield
    except SandboxError as error:
        raise _failure(str(error), error) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise _failure(f"{where}{error.strerror}; a sandbox needs root, and a folder of its own", error) from error


def _failure(message: str, error: BaseException) -> click.ClickException:
    return click.ClickException("\n".join([message, *getattr(error, "__notes__", ())]))
