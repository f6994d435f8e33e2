"""One run of the jobs of `tests.bench.live`, on a fresh cluster or in the simulator, and its figures."""

import json
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config, Guardrails
from slurmplug.sandbox import ClusterSpec, Node, Sandbox
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment.result import FinishedJob, RunResult
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.experiment.summary import summary
from tests.bench.live_jobs import GPUS_A_NODE, NODES, SLOT, elastic, rigid, with_checkpoints
from tests.live import real_jobs
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.test_submit_plugin import CHECK, site_script

ALONE, ADMITS = "Slurm alone", "oasis"
TURNED_DOWN = 5 * SLOT
"""seconds without another job that lives, after which who is held will not be admitted"""
PATIENCE = 1800.0
RESTART = 8.0
"""seconds for which a job that is restarted does not train: a requeue, a start, the daemon's cycles between them"""
Figures = dict[str, Any]
"""of a run: each job's turnaround, seconds from when it was due to its end, and figures by name"""


@dataclass(frozen=True)
class Design:
    """Jobs, the policies that they run under by the names of rows, and the site's settings, tables of TOML by name."""

    jobs: Callable[[int], Workload]
    script: Callable[[SimJob], str]
    policies: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    columns: Mapping[str, tuple[str, str]]
    """of its table: the figure and its format, by heading"""
    simulated: Mapping[str, str] = field(default_factory=dict)
    """policies beside these in the simulator, by row"""


DESIGNS: Mapping[str, Design] = {
    "rigid": Design(
        rigid,
        real_jobs.training,
        {
            ALONE: "slurm",
            "mlf-h: order only": "mlf-h",
            "mlfs": "mlfs",
            "slaq": "slaq",
            "ml-sjf": "ml-sjf",
            ADMITS: "oasis",
        },
        {
            "mode": {"default": "act", "admit": "act"},
            # the policy's order outweighs fairshare, which else counts about as much
            "priority": {"top": 1_000_000},
            "policies.oasis": {"slot": SLOT},
        },
        {
            "deadlines met": ("deadline_ratio", "{:.0%}"),
            "accuracy by deadline": ("accuracy_by_deadline", "{:.3f}"),
            "GPU hours": ("gpu_hours", "{:.3f}"),
            "stopped": ("stops", "{:.0f}"),
            "utility": ("utility", "{:,.0f}"),
            "completed": ("completed", "{:.0f}"),
        },
        {"srtf with true run times": "srtf"},
    ),
    "elastic": Design(
        elastic,
        with_checkpoints,
        {ALONE: "slurm", "fair": "fair", "slaq": "slaq", "optimus": "optimus", "mlfs": "mlfs"},
        {
            "mode": {"default": "act"},
            "priority": {"top": 1_000_000},
            "operations": {"interval": 1.0},
            # The times of the defaults, in seconds for minutes, as those of the jobs; what a restart costs is as it is.
            "guardrails": {
                "size_interval": 5.0,
                "requeue_cooldown": 30.0,
                "minimum_run": 15.0,
                "first_seen": 1.0,
                "requeue_cost": RESTART,
                "requeue_waste": 0.25,
                "requeues_per_hour": 1000,
                "requeues_per_user": 1000,
            },
            "policies.fair": {"quantum": 60.0},
            "policies.slaq": {"restart": RESTART, "epoch": 20.0, "interval": 1.0, "starvation": 120.0},
            "policies.mlfs": {"restart": RESTART},
            "policies.mlf-h": {"restart": RESTART, "grow": False},
        },
        {
            "completed": ("completed", "{:.0f}"),
            **{
                name: (name, "{:.0f}")
                for name in ("resized at their start", "grown", "shrunk", "resized", "preempted", "not done")
            },
        },
        {"mlf-h: order only": "mlf-h"},
    ),
}


def history(design: Design, ledger: Path) -> None:
    """Write the ledger of a daemon that only observed another draw of the jobs, on a cluster where none waits long."""
    node = Node(gpus=16 * GPUS_A_NODE, cpus=16 * GPUS_A_NODE)
    with Sandbox(ClusterSpec(nodes=(node,) * NODES)) as cluster, daemon_beside(cluster) as daemon:
        daemon.start('[mode]\ndefault = "observe"\n')
        real_jobs.run(cluster, design.jobs(0), script=design.script)
        daemon.pass_cycles()
        daemon.signal(signal.SIGTERM)
        shutil.copy(daemon.ledger_path, ledger)


def measured(design: Design, policy: str, seed: int, *, ledger: Path, max_bypass: float | None = None) -> Figures:
    """The figures of real jobs. ledger: the daemon's at its start."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        Sandbox(_spec(policy, Path(folder))) as cluster,
        daemon_beside(cluster) as daemon,
    ):
        if policy != ALONE:
            shutil.copy(ledger, daemon.ledger_path)
            shutil.chown(daemon.ledger_path, cluster.operator)
            daemon.start(_toml(_settings(design, max_bypass)), policy=design.policies[policy])
        finished = real_jobs.run(
            cluster, design.jobs(seed), turned_down=TURNED_DOWN, script=design.script, patience=PATIENCE
        )
        moves = _moves(daemon) if policy != ALONE else {}
    return _figures(finished) | moves


def simulated(design: Design, policy: str, seed: int, *, max_bypass: float | None = None) -> Figures:
    """The same figures in a simulation, with a cycle a second as live."""
    settings = _settings(design, max_bypass)
    own = {table.removeprefix("policies."): values for table, values in settings.items() if "." in table}
    name = {**design.policies, **design.simulated}[policy]
    chosen = policy_registry.policy(Config.from_table({"policy": name, "interval": 1.0, "policies": own}))
    guardrails = Guardrails.from_table(settings.get("guardrails", {}))
    run = SimulationSettings(f"{NODES}x{GPUS_A_NODE}", 1.0, seed, launcher="slurm", guardrails=guardrails)
    finished = Simulation(design.jobs(seed), chosen, run).run().finished
    return _figures(finished) | {
        "resized": sum(each.resizes for each in finished),
        "preempted": sum(each.preemptions for each in finished),
    }


def _settings(design: Design, max_bypass: float | None) -> dict[str, Mapping[str, Any]]:
    if max_bypass is None:
        return dict(design.settings)
    return {**design.settings, "guardrails": {**design.settings.get("guardrails", {}), "max_bypass": max_bypass}}


def _toml(settings: Mapping[str, Mapping[str, Any]]) -> str:
    tables = (
        (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
        for name, values in settings.items()
    )
    return "\n".join(line for table in tables for line in table)


def _spec(policy: str, folder: Path) -> ClusterSpec:
    """Where a policy admits jobs, the submit plugin holds them."""
    if policy != ADMITS:
        return ClusterSpec()
    folder.chmod(0o755)
    check = folder / "slurmplug.lua"
    check.write_text(CHECK.read_text())
    script = site_script(folder, check)
    script.write_text(script.read_text().replace("slurmplug.check(", "slurmplug.hold("))
    return ClusterSpec(job_submit=script)


def _figures(finished: Sequence[FinishedJob]) -> Figures:
    result = RunResult("", f"{NODES}x{GPUS_A_NODE}", "", "slurm", False, 0, tuple(finished), np.empty(0), 0.0, 0.0)
    names = ("deadline_ratio", "accuracy_by_deadline", "gpu_hours", "stops", "utility")
    return {
        "turnaround": [each.ended - each.job.submit for each in finished],
        "completed": sum(each.state == "COMPLETED" for each in finished),
        **{name: float(value) for name, value in summary(result).items() if name in names},
    }


def _moves(daemon: DaemonProcess) -> Figures:
    """How many jobs started on another size than they requested, were grown, shrunk, preempted; moves that gave up."""
    told = daemon.query("SELECT kind, outcome, noted FROM operations WHERE kind IN ('resize', 'preempt')")
    done = [(each["kind"], json.loads(each["noted"])) for each in told if each["outcome"] == "done"]
    more = [
        noted["gpus"] - noted["gpus_before"] for kind, noted in done if kind == "resize" and noted["type"] == "restart"
    ]
    return {
        "resized at their start": sum(noted["type"] == "pending resize" for _, noted in done),
        "grown": sum(each > 0 for each in more),
        "shrunk": sum(each < 0 for each in more),
        "preempted": sum(kind == "preempt" for kind, _ in done),
        "not done": len(told) - len(done),
    }
