"""The submit-time check inside a real slurmctld."""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmplug.config.schema import Config
from slurmplug.config.submission import site_lua
from slurmplug.sandbox import ClusterSpec, CommandFailed, Node, Sandbox

CHECK = Path(__file__).parents[2] / "site_config" / "slurmplug.lua"
_SECONDS = itertools.count()
GOOD = "#!/bin/sh\n#PLUG --deadline=2h --urgency=7\ntrue\n"
WRONG = "#!/bin/sh\n#PLUG --urgencey=7\ntrue\n"


def site_script(folder: Path, check: Path) -> Path:
    """A site's job_submit.lua as the check's own head says to write it."""
    comment = CHECK.read_text().split("job_submit.lua:\n--\n")[1].split("--\n-- It changes")[0]
    code = "\n".join(line.removeprefix("--") for line in comment.splitlines())
    assert "/etc/slurmplug/slurmplug.lua" in code
    script = folder / "job_submit.lua"
    script.write_text(code.replace("/etc/slurmplug/slurmplug.lua", str(check)))
    return script


@pytest.fixture
def checked(folder: Path, special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    check = folder / "slurmplug.lua"
    check.write_text(CHECK.read_text())
    started = special_cluster(ClusterSpec(nodes=(Node(),), job_submit=site_script(folder, check)))
    load_again(started)
    return started


def load_again(sandbox: Sandbox) -> None:
    """Let slurmctld see a change: it looks at when its script was written, in whole seconds."""
    later = time.time() + 60 + next(_SECONDS)  # no two changes within one of them
    os.utime(sandbox.layout.slurm_conf.with_name("job_submit.lua"), (later, later))


def test_sbatch_refuses_a_wrong_directive_and_says_why(checked: Sandbox) -> None:
    with pytest.raises(CommandFailed) as refused:
        checked.sbatch("games", WRONG)
    assert "line 2: --urgencey=7: no such directive; did you mean --urgency?" in str(refused.value)


def test_a_wrong_comment_is_refused_for_every_way_to_submit(checked: Sandbox) -> None:
    for argv in (["sbatch", "--comment=plug: gpus=8..2", "--wrap=true"], ["srun", "--comment=plug: gpus=8..2", "true"]):
        answer = checked.run("games", argv, check=False)
        assert answer.returncode != 0
        assert "comment: gpus=8..2: expected a number of GPUs" in answer.stderr


def test_a_percent_sign_in_a_script_is_no_format_of_the_message(checked: Sandbox) -> None:
    with pytest.raises(CommandFailed) as refused:
        checked.sbatch("games", "#!/bin/sh\n#PLUG --type=%s%n%d\ntrue\n")
    assert "--type=%s%n%d: expected a name" in str(refused.value)


def test_a_good_job_and_a_job_without_directives_pass_and_run(checked: Sandbox) -> None:
    for script in (GOOD, "#!/bin/sh\ntrue\n"):
        checked.wait_job(checked.sbatch("games", script), "COMPLETED")


@pytest.mark.parametrize("names", ["slurmplug-577", "lesson,slurmplug-577", " Slurmplug-577 ", "lesson, \tSLURMPLUG-x"])
def test_nobody_submits_into_a_reservation_of_slurmplug_or_moves_a_job_there(checked: Sandbox, names: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        checked.sbatch("games", GOOD, f"--reservation={names}")
    assert "holds the place of a job that slurmplug moves" in str(refused.value)
    job = checked.sbatch("games", GOOD, "--hold")
    for user in ("games", checked.operator):
        moved = checked.run(user, ["scontrol", "update", f"JobId={job}", f"ReservationName={names}"], check=False)
        assert moved.returncode != 0
        assert "invalid" not in moved.stderr  # Slurm's own answer; 22.05 does not show a plugin's to who modifies a job
    checked.run("games", ["scontrol", "update", f"JobId={job}", "ReservationName=", "Comment=x"])


def test_other_reservations_and_root_are_left_to_slurm(checked: Sandbox) -> None:
    for user, name in (("games", "lesson"), ("games", "notslurmplug-5"), ("root", "slurmplug-577")):
        answer = checked.run(user, ["sbatch", f"--reservation={name}", "--wrap=true"], check=False)
        assert "Requested reservation is invalid" in answer.stderr


def test_what_has_no_effect_is_warned_of_and_the_job_runs(checked: Sandbox) -> None:
    script = "#!/bin/sh\n#PLUG --stop=optstop\ncat <<EOF >/dev/null\n#PLUG --nonsense=1\nEOF\n"
    submitted = checked.run("games", ["sbatch", "--parsable"], input=script)
    assert "line 2: --stop=optstop: without --max-iterations" in submitted.stderr
    assert "line 4: #PLUG --nonsense=1: follows the first command" in submitted.stderr
    checked.wait_job(int(submitted.stdout), "COMPLETED")


@pytest.mark.parametrize(("options", "said"), [((), ""), (("--no-requeue",), "with --no-requeue the number of GPUs")])
def test_a_range_of_gpus_of_a_job_that_slurm_does_not_requeue_is_warned_of(
    options: tuple[str, ...], said: str, checked: Sandbox
) -> None:
    script = "#!/bin/sh\n#PLUG --gpus=1..4 --checkpoint=file\ntrue\n"
    warned = checked.run("games", ["sbatch", "--parsable", "--requeue", *options], input=script).stderr
    assert said in warned if said else warned == ""


def test_what_this_site_does_not_do_is_warned_of(checked: Sandbox, folder: Path) -> None:
    (folder / "site.lua").write_text(site_lua(Config()))
    load_again(checked)
    script = "#!/bin/sh\n#PLUG --gpus=1..4 --checkpoint=file\ntrue\n"
    warned = checked.run("games", ["sbatch", "--parsable"], input=script).stderr
    assert "--gpus=1..4: the number of GPUs is not changed: the mode for resizes is observe here" in warned


@pytest.mark.parametrize(
    "content", [None, "this is no Lua", "error('at load')", "return {check = function() error('x') end}"]
)
def test_a_check_that_is_missing_or_broken_lets_every_job_pass(
    content: str | None, checked: Sandbox, folder: Path
) -> None:
    check = folder / "slurmplug.lua"
    if content is None:
        check.unlink()
    else:
        check.write_text(content)
    load_again(checked)
    checked.wait_job(checked.sbatch("games", WRONG), "COMPLETED")
