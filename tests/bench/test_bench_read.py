"""What reading a queue costs, less the time of squeue itself."""

import random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from slurmplug.cluster import parse
from slurmplug.cluster.parse import JOB_FIELDS, NODE_FIELDS, Separators

SEPARATORS = Separators("fK3a9Qz", "rT7b0Wm")
NOW = 1_796_000_000.0


def squeue(jobs: int) -> str:
    """So many jobs of 300 users, a fifth of them running, no two alike."""
    draw = random.Random(7)
    return "".join(record_of(JOB_FIELDS, made_up_job(job_id, draw)) for job_id in range(1, jobs + 1))


def sinfo(nodes: int, **told: str) -> str:
    """So many nodes alike, but for their names."""
    node = {
        "PartitionName": "gpu", "StateComplete": "mixed", "Features": "fast,nvlink", "Features_act": "fast,nvlink",
        "Gres": "gpu:a100:8",
        "GresUsed": "gpu:a100:3(IDX:0-1,5)", "CPUsState": "24/40/0/64", "CPUsLoad": "21.33", "Memory": "512000",
        "AllocMem": "96000", "FreeMem": "380211", **told,
    }  # fmt: skip
    return "".join(record_of(NODE_FIELDS, {**node, "NodeList": f"n{at}"}) for at in range(nodes))


def array(elements: int) -> str:
    job = made_up_job(1, random.Random(7)) | {"State": "PENDING", "ArrayJobID": "1"}
    return "".join(record_of(JOB_FIELDS, {**job, "ArrayTaskID": str(task)}) for task in range(elements))


def record_of(fields: tuple[str, ...], told: dict[str, str]) -> str:
    return SEPARATORS.field.join(told[name] for name in fields) + SEPARATORS.record + "\n"


def made_up_job(job_id: int, draw: random.Random) -> dict[str, str]:
    running, gpus, user = draw.random() < 0.2, draw.choice((1, 2, 4, 8)), draw.randrange(300)
    submit = 1_795_000_000 + draw.randrange(1_000_000)
    return dict.fromkeys(JOB_FIELDS, "N/A") | {
        "JobID": str(job_id),
        "ArrayJobID": str(job_id),
        "UserID": str(1000 + user),
        "UserName": f"user{user}",
        "Account": f"lab{user % 40}",
        "QOS": "normal",
        "Partition": "gpu",
        "State": "RUNNING" if running else "PENDING",
        "Reason": "None" if running else "Priority",
        "Name": f"train-{job_id}",
        "NodeList": f"n{job_id % 900}" if running else "",
        "BatchFlag": "1",
        "RestartCnt": "0",
        "SubmitTime": str(submit),
        "EligibleTime": str(submit),
        "StartTime": str(submit + 900),
        "EndTime": str(submit + 90_000),
        "TimeUsed": f"{draw.randrange(24)}:{draw.randrange(60):02}:00" if running else "0:00",
        "TimeLimit": "1-00:00:00",
        "PriorityLong": str(draw.randrange(1_000_000)),
        "Nice": "0",
        "NumNodes": "1",
        "NumCPUs": "16",
        "NumTasks": "1",
        "tres-alloc": f"cpu=16,mem=64000M,node=1,billing=16,gres/gpu={gpus},gres/gpu:a100={gpus}",
        "tres-per-node": f"gres/gpu:a100:{gpus}",
        "exit_code": "0:0",
    }


@pytest.mark.parametrize("jobs", [10_000, 100_000])
def test_jobs_of_one_squeue(benchmark: BenchmarkFixture, jobs: int) -> None:
    text = squeue(jobs)
    found = benchmark(parse.queue, text, SEPARATORS, NOW)
    assert len(found.rows) == jobs


def test_one_array_of_one_squeue(benchmark: BenchmarkFixture) -> None:
    text = array(50_000)
    found = benchmark(parse.queue, text, SEPARATORS, NOW)
    assert found.rows.elements.tolist() == [50_000]


def test_nodes_of_one_sinfo(benchmark: BenchmarkFixture) -> None:
    text = sinfo(5_000)
    assert len(benchmark(parse.nodes, text, SEPARATORS).name) == 5_000
