"""submit: a script is checked before sbatch gets it; the sbatch here is a program that says what it was given."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ledgers import Site

PROGRAM = [sys.executable, "-c", "from slurmplug.commands import main; main()", "submit"]
SBATCH = """#!{python}
import json, os, sys
if "--test-only" in sys.argv:
    print("sbatch: defined options\\nsbatch: gres : gres:gpu:1\\nsbatch: time : 01:30:00", file=sys.stderr)
    print("sbatch: end of defined options", file=sys.stderr)
    print("Job 1 to start at 1795551923 using 4 processors on nodes n1 in partition gpu", file=sys.stderr)
    sys.exit(0)
print(json.dumps([sys.argv[1:], sys.stdin.read(), os.environ.get("SLURM_CONF"), os.environ.get("SBATCH_QOS")]))
print("sbatch: a word of its own", file=sys.stderr)
sys.exit(7)
"""
GOOD = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=20\ntrain\n"


class Host:
    """A login node with slurmplug's configuration, a ledger and an sbatch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "slurmplug.toml"
        (folder / "bin").mkdir()
        sbatch = folder / "bin" / "sbatch"
        sbatch.write_text(SBATCH.format(python=sys.executable))
        sinfo = folder / "bin" / "sinfo"
        sinfo.write_text("#!/bin/sh\necho '(null)|gpu:4|n/a|infinite|n[1-2]|4000'\n")
        scontrol = folder / "bin" / "scontrol"
        scontrol.write_text("#!/bin/sh\necho No reservations in the system\n")
        for program in (sbatch, sinfo, scontrol):
            program.chmod(0o755)
        slurm = f'[slurm]\nbin = "{folder}/bin"\nconf = "{folder}/slurm.conf"\n'
        self.config.write_text(f'{slurm}[ledger]\npath = "{folder}/ledger.db"\n')
        with Site(folder, mode={"default": "act", "resize": "observe"}) as site:
            site.cluster.start(site.cluster.submit())
            site.cycle()

    def submit(self, script: str, *rest: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        (self.folder / "job.sh").write_text(script)
        command = [*PROGRAM, "--config", str(self.config), "job.sh", *rest]
        return subprocess.run(command, cwd=self.folder, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("SBATCH_QOS", "high")
    return Host(tmp_path)


def test_sbatch_gets_its_options_the_script_and_its_arguments_and_answers_itself(host: Host) -> None:
    done = host.submit(GOOD, "--parsable", "-p", "gpu", "--", "--epochs", "--", "x y", stdin="data")
    arguments, stdin, conf, qos = json.loads(done.stdout)
    assert arguments == ["--parsable", "-p", "gpu", "job.sh", "--epochs", "--", "x y"]
    assert (stdin, conf, qos) == ("data", f"{host.folder}/slurm.conf", "high")
    assert done.returncode == 7
    assert done.stderr.endswith("sbatch: a word of its own\n")


def test_what_is_known_of_the_job_is_said_on_stderr(host: Host) -> None:
    done = host.submit(GOOD)
    assert "--target=accuracy>=0.9, --max-iterations=20, --stop=target." in done.stderr
    assert "Its kind is its user and its name" in done.stderr
    typed = host.submit(GOOD.replace("--stop", "--type=resnet50 --stop"))
    assert "Its kind is resnet50" in typed.stderr
    assert len(done.stdout.splitlines()) == 1


def test_its_start_end_and_run_time_are_those_of_estimate(host: Host) -> None:
    done = host.submit(GOOD)
    command = [*PROGRAM[:-1], "estimate", "--config", str(host.config), "job.sh"]
    alone = subprocess.run(command, cwd=host.folder, capture_output=True, text=True, check=True)
    for line in ("  Run time  ", "  Start     ", "  End       "):
        assert line in alone.stdout
        assert line in done.stderr


def test_estimate_tells_of_other_partitions_that_sbatch_would_take_it_in(host: Host) -> None:
    sbatch, sinfo = host.folder / "bin" / "sbatch", host.folder / "bin" / "sinfo"
    names = """case "$*" in *%R*) printf 'gpu\\nlong\\nclosed\\ngpu\\n'; exit;; esac"""
    sinfo.write_text(sinfo.read_text().replace("echo", f"{names}\necho"))
    refusing = 'if "--partition=closed" in sys.argv:\n    sys.exit("sbatch: error: Invalid account or partition")\n'
    sbatch.write_text(sbatch.read_text().replace('if "--test-only"', f'{refusing}if "--test-only"', 1))
    (host.folder / "job.sh").write_text(GOOD)
    command = [*PROGRAM[:-1], "estimate", "--config", str(host.config)]
    done = subprocess.run([*command, "--json", "job.sh"], cwd=host.folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    [there] = [change for change in found["changes"] if change["change"] == "partition"]
    assert there["value"] == "long"
    assert there["start"]["median"] == pytest.approx(found["start"]["median"], abs=300.0), "it has the same nodes"
    text = subprocess.run([*command, "job.sh"], cwd=host.folder, capture_output=True, text=True, check=True).stdout
    assert "  --partition=long: start " in text
    assert "closed" not in text


def test_it_is_submitted_where_sbatch_tells_nothing_before(host: Host) -> None:
    sbatch = host.folder / "bin" / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("sys.exit(0)", "sys.exit(1)").replace("to start at", "starts at"))
    done = host.submit(GOOD)
    assert "nothing more is known of the job: sbatch --test-only" in done.stderr
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--urgencey=7", "job.sh: line 2: --urgencey=7: no such directive; did you mean --urgency?"),
        ("--stop=targte", "did you mean --stop=target?"),
        ("--stop=target", "needs --target"),
        ("--type=\x1b[2J", "has a character that is not plain ASCII"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_submitted(host: Host, line: str, said: str) -> None:
    done = host.submit(f"#!/bin/sh\n#PLUG {line}\ntrain\n")
    assert said in done.stderr
    assert "nothing was submitted" in done.stderr
    assert "\x1b" not in done.stderr
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("options", [("--comment=plug: urgency=70",), ("--comment", "plug: urgency=70")])
def test_a_mistake_in_the_comment_is_one_too(host: Host, options: tuple[str, ...]) -> None:
    done = host.submit(GOOD, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "job.sh: comment: urgency=70: expected a number from 0 to 10" in done.stderr


def test_the_comment_is_also_that_of_the_script_which_the_command_line_overrides(host: Host) -> None:
    script = GOOD.replace("#SBATCH", "#SBATCH --comment='plug: urgency=70' # why not\n#SBATCH")
    assert "comment: urgency=70" in host.submit(script).stderr
    done = host.submit(script, "--comment=plug: urgency=7")
    assert done.returncode == 7
    assert "--urgency=7" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\n#PLUG --gpus=1..4 --checkpoint=file\n", "the mode for resizes is observe here"),
        ("#!/bin/sh\n#PLUG --stop=optstop\n", "is not forecast without --max-iterations"),
        ("#!/bin/sh\n# PLUG --urgency=7\n", "is not read: write #PLUG, without a blank"),
        ("#!/bin/sh\ntrain\n#PLUG --urgency=7\n", "follows the first command"),
    ],
)
def test_what_has_no_effect_here_is_said_and_the_job_submitted(host: Host, script: str, said: str) -> None:
    done = host.submit(script)
    assert said in done.stderr
    assert done.returncode == 7


def test_the_last_option_on_requeueing_counts(host: Host) -> None:
    (host.folder / "ledger.db").rename(host.folder / "elsewhere.db")
    script = "#!/bin/sh\n#SBATCH --no-requeue\n#PLUG --gpus=1..4 --checkpoint=file\n"
    assert "--no-requeue" not in host.submit(script, "--requeue").stderr
    assert "--no-requeue" in host.submit(script, "--requeue", "--no-requeue").stderr


def test_a_script_without_directives_is_left_to_slurm(host: Host) -> None:
    done = host.submit("#!/bin/sh\ntrue\n")
    assert "It has no directives: it is left to Slurm." in done.stderr
    assert done.returncode == 7


def test_a_script_is_submitted_where_nothing_is_known_of_it(host: Host) -> None:
    (host.folder / "ledger.db").rename(host.folder / "elsewhere.db")
    done = host.submit(GOOD)
    assert "nothing more is known of the job: the ledger" in done.stderr
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\n#PLUG --stop=optstop\n", "is not forecast without --max-iterations"),
        ("#!/bin/sh\n# PLUG --urgency=7\n", "is not read: write #PLUG, without a blank"),
        ("#!/bin/sh\n#PLUG --gpus=1..4\n", "requires --checkpoint"),
        ("#!/bin/sh\n#SBATCH --no-requeue\n#PLUG --gpus=1..4 --checkpoint=file\n", "submitted with --no-requeue"),
    ],
)
def test_what_has_no_effect_anywhere_is_said_where_the_daemon_cannot_be_asked(
    host: Host, script: str, said: str
) -> None:
    (host.folder / "ledger.db").rename(host.folder / "elsewhere.db")
    done = host.submit(script)
    assert said in done.stderr
    assert "nothing more is known of the job: the ledger" in done.stderr
    assert done.returncode == 7


def test_it_is_submitted_without_a_configuration(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.config.unlink()
    monkeypatch.setenv("PATH", str(host.folder / "bin"), prepend=":")
    done = host.submit(GOOD)
    assert "there is no configuration" in done.stderr
    assert done.returncode == 7


def test_a_script_that_cannot_be_read_is_said(host: Host) -> None:
    done = subprocess.run([*PROGRAM, "none.sh"], cwd=host.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: the script none.sh cannot be read: No such file or directory\n",
    )


def test_where_there_is_no_sbatch_that_is_said(host: Host) -> None:
    (host.folder / "bin" / "sbatch").unlink()
    done = host.submit(GOOD)
    assert "sbatch cannot be run: No such file or directory; set slurm.bin to its folder" in done.stderr
    assert done.returncode == 1
