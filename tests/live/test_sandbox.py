"""The sandbox is a real Slurm: isolated, with true identities, and it leaves nothing behind."""

from slurmplug.sandbox import Sandbox


def test_a_job_of_a_researcher_runs_on_its_gpus(cluster: Sandbox) -> None:
    researcher = cluster.researchers[0]
    job = cluster.sbatch(researcher, "#!/bin/sh\nid -un\necho $CUDA_VISIBLE_DEVICES\n", "--gres=gpu:2")
    cluster.wait_job(job, "COMPLETED")
    output = cluster.home(researcher) / f"slurm-{job}.out"
    assert output.read_text().split() == [researcher, "0,1"]
