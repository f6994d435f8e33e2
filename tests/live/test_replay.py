"""`slurmplug replay --since` of a real Slurm's accounting, in which a user chose names that look like other jobs."""

import json
import time
from pathlib import Path

from click.testing import CliRunner

from slurmplug.commands import main
from slurmplug.sandbox import Sandbox

NAMES = ("plain", "a\nb|c", "q\n99999|root|root|gpu|normal", "x\x1b[31m\r|y")


def test_names_of_jobs_do_no_harm(cluster: Sandbox, tmp_path: Path) -> None:
    user, since = cluster.researchers[0], time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    for name in NAMES:
        job = cluster.sbatch(user, "#!/bin/sh\nsleep 2\n", "--output=/dev/null", "--gres=gpu:1", "--job-name", name)
        cluster.wait_job(job, "COMPLETED", timeout=60)
    programs = f'bin = "{cluster.spec.slurm}/bin"\n' if cluster.spec.slurm else ""
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[slurm]\nconf = "{cluster.layout.slurm_conf}"\n{programs}')
    options = ("--since", since, "--slurm-conf", str(cluster.layout.slurm_conf), "--config", str(config), "--json")

    def jobs_of_users() -> dict[str, int]:
        result = CliRunner().invoke(main, ["replay", *options])
        if "no job is left in it" in result.output:  # slurmdbd has none of them yet
            return {}
        assert result.exit_code == 0, result.output
        return {each["name"]: each["jobs"] for each in json.loads(result.output)["users"]}

    cluster.wait(lambda: jobs_of_users() == {user: len(NAMES)}, timeout=120, what="the jobs in the accounting")
