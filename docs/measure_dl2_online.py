"""What DL2's online stage gains, and what each part of it gives (the paper's Table 2 and OfflineRL of its Fig. 10).

    python -m docs.measure_dl2_online FOLDER

trains in FOLDER a supervised model of other speeds than those it is judged on, and from it, for each seed, the online
stage, the stage without each part, and the stage on simulations of those other speeds, which the paper calls
OfflineRL. Models that are there are not trained again. Each is judged on 100 jobs of `gen:dl2` at load 1, seeds 5 to
14, on three clusters: the change of mean JCT against the supervised model, paired by workload. Needs the extra `rl`.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from docs.results.cases import Case, run
from docs.results.cells import half, markdown
from docs.results.dl2 import CLUSTERS, FEWER, SEEDS, SLOT, WORKLOAD
from slurmplug.rl.training import Training

OTHER_SPEEDS = f"{WORKLOAD}?shapes=drawn"
SUPERVISED = "supervised"
RIVALS = ("drf", "optimus")
TRAININGS = (2000, 3000, 4000)
"""seeds of the online stage"""
EPISODES = {"episodes": 24, "jobs": 40, "batch": 128}
STAGES: Mapping[str, Mapping[str, Any]] = {
    "online": {"online": EPISODES},
    "without the value network": {"online": EPISODES | {"critic": False}},
    "without exploration": {"online": EPISODES | {"epsilon": 0.0}},
    "without replay": {"online": EPISODES | {"replay": 0}},
    "offline": {"online": EPISODES, "workload": OTHER_SPEEDS},
}


def trained(folder: Path) -> dict[str, Path]:
    """The files of the models, by stage and seed."""
    start = folder / f"{SUPERVISED}.safetensors"
    trainings = {SUPERVISED: Training("dl2", {"workload": OTHER_SPEEDS}, start)}
    for stage, settings in STAGES.items():
        for seed in TRAININGS:
            given = {**settings, "seed": seed, "start": str(start), "every": 4, "choosing": 4}
            name = f"{stage} {seed}"
            trainings[name] = Training("dl2", given, folder / f"{name.replace(' ', '-')}.safetensors")
    for name, training in trainings.items():
        if not training.finished():
            print(f"training {name}", file=sys.stderr, flush=True)
            training.run(lambda *_: None)
    return {name: training.out for name, training in trainings.items()}


def judged(folder: Path, models: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """(clusters, seeds) mean JCT in seconds under each model and rival. What was run is kept in FOLDER."""
    kept = folder / "judged.json"
    known: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    found = {name: np.zeros((len(CLUSTERS), len(SEEDS))) for name in (*models, *RIVALS)}
    for i, cluster in enumerate(CLUSTERS):
        for j, seed in enumerate(SEEDS):
            for name, column in found.items():
                policy, settings = (name, ()) if name in RIVALS else ("dl2", (("model", str(models[name])),))
                key = f"{name}, {cluster}, {seed}"
                if key not in known:
                    case = Case(WORKLOAD, policy, cluster, seed, 1.0, SLOT, jobs=FEWER, settings=settings)
                    known[key] = run(case)["jct_mean"]
                    kept.write_text(json.dumps(known))
                column[i, j] = known[key]
    return found


def rows(jct: Mapping[str, np.ndarray]) -> list[list[str]]:
    """A row a stage: its change against the supervised model by training and in their mean, and against the rivals."""
    made = []
    for stage in (SUPERVISED, *STAGES):
        names = [name for name in jct if name.startswith(stage)]
        own = np.array([jct[name] for name in names])  # (trainings, clusters, seeds)
        changes = 100 * (own / jct[SUPERVISED] - 1)
        each = changes.mean(axis=(1, 2))
        single = stage == SUPERVISED
        cells = ["" if single else ", ".join(f"{mean:+.1f}" for mean in each)]
        cells.append("" if single else f"{each.mean():+.1f}% ± {half(each):.1f}")
        for rival in RIVALS:
            ratios = 100 * (own / jct[rival] - 1).mean(axis=(0, 1))
            cells.append(f"{ratios.mean():+.1f}% ± {half(ratios):.1f}")
        made.append([stage, *cells])
    return made


def main(folder: Path) -> None:
    """Train, judge and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    jct = judged(folder, trained(folder))
    print(markdown(["model", "three trainings, %", "their mean", *(f"against {rival}" for rival in RIVALS)], rows(jct)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
