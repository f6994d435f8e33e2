"""The type of the GPUs that jobs hold, where Slurm's accounting does not track types."""

from typing import Any

import pytest

from slurmplug.cluster.held_types import with_held_types
from tests.builders import NOW
from tests.fake_cluster import job_row, job_rows, node_rows

GPUS = [{"a100": 4}, {"a100": 2, "v100": 2}, {"": 4}, {"1g.10gb": 7}]


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"node_list": "n1"}, "a100"),
        ({"node_list": "n[1-2]"}, ""),
        ({"node_list": "n2"}, ""),
        ({"node_list": "n2", "gpu_type": "v100"}, "v100"),
        ({"node_list": "n2", "gpu_type": "a100,v100"}, ""),
        ({"node_list": "n1", "gpu_type_held": "h100"}, "h100"),
        ({"node_list": "n3"}, ""),
        ({"node_list": "n4"}, "1g.10gb"),
        ({"node_list": "n1", "gpus": 0}, ""),
        ({"node_list": "gone"}, ""),
        ({"node_list": "n1", "state": "COMPLETED"}, "a100"),
        ({"start": float("nan"), "state": "PENDING", "gpu_type": "a100"}, ""),
    ],
)
def test_is_the_one_that_it_requested_or_the_only_one_of_its_nodes(given: dict[str, Any], held: str) -> None:
    rows = job_rows([job_row(1, **{"state": "RUNNING", "start": NOW, **given})])
    assert with_held_types(rows, node_rows(4, gpus=GPUS)).gpu_type_held.tolist() == [held]
