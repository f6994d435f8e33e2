"""How long simulations and decisions take, for docs/make_results.py: one at a time, on one core."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

TIMES = 5
"""so often each simulation is run, but for long ones"""
LONG = 20.0
"""seconds"""
BENCHES = ("test_bench_mlfs.py", "test_bench_slaq.py", "test_bench_oasis.py")


def repeated(run: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], float, float]:
    """The figures of a simulation, and the median of the seconds that it took and of those of the processor."""
    wall, processor = [], []
    while True:
        before = process_time()
        with threadpool_limits(1):  # threads of the linear algebra that wait for each other count as work
            figures = run()
        processor.append(process_time() - before)
        wall.append(float(figures["wall_s"]))
        if len(wall) == TIMES or wall[0] > LONG:
            return figures, float(np.median(wall)), float(np.median(processor))


def decisions() -> Iterator[tuple[str, float]]:
    """Each decision that tests/bench measures, by name, and the median of its milliseconds of the processor."""
    with tempfile.TemporaryDirectory() as folder:
        done = Path(folder) / "done.json"
        files = [f"tests/bench/{name}" for name in BENCHES]
        options = f"-q -k decide --benchmark-only --benchmark-timer=time.process_time --benchmark-json={done}".split()
        subprocess.run([sys.executable, "-m", "pytest", *files, *options], check=True, stdout=subprocess.DEVNULL)
        for each in json.loads(done.read_text(encoding="utf-8"))["benchmarks"]:
            module = Path(each["fullname"].partition("::")[0]).stem.removeprefix("test_bench_")
            yield f"{module}: {each['param']}", 1e3 * float(each["stats"]["median"])
