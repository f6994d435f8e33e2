"""`slurmplug sandbox`: a throwaway real Slurm to try things on."""

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
    try:
        cluster.up()
    except SandboxError as error:
        raise click.ClickException(str(error)) from error
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
    try:
        Sandbox.attach(folder).down(keep_logs=keep_logs)
    except SandboxError as error:
        raise click.ClickException(str(error)) from error


@sandbox.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(".demo"))
def demo(*, folder: Path) -> None:
    """Watch slurmplug serve a cluster and its training jobs; results come to FOLDER (default: .demo)."""
    from slurmplug.sandbox.demo import run  # noqa: PLC0415 the ledger and its numpy take a second to load

    try:
        run(folder)
    except (SandboxError, KeyboardInterrupt) as error:
        message = str(error) or "interrupted; all that it started has ended"
        raise click.ClickException("\n".join([message, *getattr(error, "__notes__", ())])) from error
