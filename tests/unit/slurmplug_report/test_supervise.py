"""`slurmplug-report run` around real programs."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slurmplug.spool.report_files import ReportReader
from slurmplug.spool.report_lines import fold
from slurmplug.spool.requests import Requests
from slurmplug.spool.values import Points, RunId
from slurmplug_report import supervise
from tests.unit.slurmplug_report.job_python import PYTHON

RUN = RunId(42, 0)
PATTERN = r"epoch (?P<iteration>\d+): loss=(?P<loss>\S+)(?: acc=(?P<accuracy>[0-9.]+))?"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for name in ("reports", "requests"):
        (tmp_path / name).mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def started(spool: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The programs that a test started, none of which survives it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def environment(spool: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "42", "SLURMPLUG_SPOOL": str(spool), **more}


def command(*argv: str, options: tuple[str, ...] = ("--pattern", PATTERN)) -> list[str]:
    return [PYTHON, "-m", "slurmplug_report", "run", *options, "--", *argv]


def python(code: str) -> list[str]:
    return command(PYTHON, "-c", code)


def run(argv: list[str], spool: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, env=environment(spool, **more), capture_output=True, timeout=30, check=False)


def points(spool: Path) -> Points:
    lines = ReportReader(spool).read({RUN: os.getuid()}).lines.get(RUN, b"")
    return fold(Points(), lines, now=time.time())[0]


def faults(spool: Path) -> Mapping[str, int]:
    lines = ReportReader(spool).read({RUN: os.getuid()}).lines.get(RUN, b"")
    return fold(Points(), lines, now=time.time())[1]


def test_named_groups_of_matching_lines_are_reported(spool: Path) -> None:
    done = run(python("print('hello'); [print(f'epoch {i}: loss={1/(i+1)} acc=0.{i}') for i in range(3)]"), spool)
    assert (done.returncode, done.stderr) == (0, b"")
    assert points(spool).iterations.tolist() == [0, 1, 2]
    assert points(spool).quantities["loss"].tolist() == [1, 1 / 2, 1 / 3]
    assert points(spool).quantities["accuracy"].tolist() == [0, 0.1, 0.2]


def test_a_pattern_that_never_matched_is_named_at_the_end(spool: Path) -> None:
    options = ("--pattern", PATTERN, "--pattern", r"step (?P<iteration>\d+)")
    done = run(command(PYTHON, "-c", "print('epoch 1: loss=3')", options=options), spool)
    assert done.stderr == b"slurmplug: no line of the output matched --pattern step (?P<iteration>\\d+)\n"
    assert faults(spool) == {"unmatched pattern": 1}


def test_long_before_the_end_it_is_said_that_no_pattern_has_matched(
    spool: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    code = "import time; [print('step', i) for i in range(15_000)]; time.sleep(60)"
    process = subprocess.Popen(python(code), env=environment(spool), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    started.append(process)
    assert process.stderr is not None
    assert process.stderr.readline() == b"slurmplug: no --pattern matched the first 10,000 lines of the output\n"
    deadline = time.monotonic() + 30
    while not faults(spool) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert faults(spool) == {"unmatched pattern": 1}


def test_several_patterns_tell_of_the_iteration_last_named(spool: Path) -> None:
    code = "print('== epoch 7 ==\\nval perplexity: 12.5\\nsaved checkpoint 7')"
    options = [r"--pattern=epoch (?P<iteration>\d+)", r"--pattern=perplexity: (?P<perplexity>\S+)"]
    options.append(r"--pattern=checkpoint (?P<checkpoint>\d+)")
    run(command(PYTHON, "-c", code, options=tuple(options)), spool)
    assert points(spool).iterations.tolist() == [7]
    assert points(spool).quantities["perplexity"].tolist() == [12.5]
    assert points(spool).checkpoint == 7


def test_a_line_that_names_the_trial_begins_another_curve(spool: Path) -> None:
    code = "for k in 1, 2:\n print('fold', k)\n for i in 1, 2: print(f'epoch {i}: loss={k}{i}')"
    options = ("--pattern", r"fold (?P<trial>\d+)", "--pattern", PATTERN)
    run(command(PYTHON, "-c", code, options=options), spool)
    found = points(spool)
    assert [trial.name for trial in found.trials] == ["1", "2"]
    assert found.of_trial(0).quantities["loss"].tolist() == [11, 12]
    assert found.of_trial(1).quantities["loss"].tolist() == [21, 22]


def test_the_lines_of_a_progress_bar_are_lines(spool: Path) -> None:
    run(python(r"print('\repoch 1: loss=3\repoch 1: loss=2', end='', file=__import__('sys').stderr)"), spool)
    assert points(spool).quantities["loss"].tolist() == [2]


def test_output_passes_through_unchanged(spool: Path) -> None:
    code = r"import os; os.write(1, bytes(range(256)) * 1000 + b'epoch 1: loss=1'); os.write(2, b'\xff\x00 no end')"
    done = run(python(code), spool)
    assert done.stdout == bytes(range(256)) * 1000 + b"epoch 1: loss=1"
    assert done.stderr == b"\xff\x00 no end"


def test_output_and_errors_into_one_file_keep_their_order(spool: Path, tmp_path: Path) -> None:
    code = "import os; [os.write(1 + i % 2, b'%d\\n' % i) for i in range(200)]"
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(python(code), env=environment(spool), stdout=out, stderr=out, timeout=30, check=True)
    *lines, last = (tmp_path / "out").read_text().splitlines()
    assert lines == [str(i) for i in range(200)]
    assert last.startswith("slurmplug: no line")


def test_a_line_of_a_program_is_seen_before_the_program_ends(
    spool: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process = subprocess.Popen(
        python("print('epoch 1: loss=1'); input()"),
        env=environment(spool),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    started.append(process)
    assert process.stdout
    assert process.stdout.readline() == b"epoch 1: loss=1\n"
    process.communicate(b"\n")
    assert process.returncode == 0


def test_lines_without_end_cost_no_memory_and_what_follows_is_matched(spool: Path) -> None:
    code = "import sys; [sys.stdout.write('x' * 65536) for _ in range(200)]; print(); print('epoch 1: loss=1')"
    done = run(python(code), spool)
    assert len(done.stdout) == 200 * 65_536 + 1 + len("epoch 1: loss=1\n")
    assert points(spool).quantities["loss"].tolist() == [1]


@pytest.mark.parametrize(("end", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", 128 + signal.SIGSEGV)])
def test_the_exit_status_is_the_programs(end: str, status: int, spool: Path) -> None:
    assert run(command("sh", "-c", end), spool).returncode == status


@pytest.mark.parametrize(("program", "status"), [("/nonexistent/program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_be_run_is_said_as_a_shell_does(program: str, status: int, spool: Path) -> None:
    done = run(command(program), spool)
    assert done.returncode == status
    assert program.encode() in done.stderr


WAITING = "trap 'echo got {0}; exit 5' {0}; echo ready; while :; do sleep 0.01; done"
TRAINING = "trap 'echo got {0}; exit 5' {0}; echo ready; while :; do echo epoch 1: loss=1; sleep 0.1; done"


def start(argv: list[str], spool: Path, started: list[subprocess.Popen[bytes]], **more: str) -> subprocess.Popen[bytes]:
    """Start a program and wait until it says that it is ready."""
    process = subprocess.Popen(argv, env=environment(spool, **more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("name", ["HUP", "INT", "TERM", "USR1", "USR2"])
def test_signals_reach_the_program(name: str, spool: Path, started: list[subprocess.Popen[bytes]]) -> None:
    process = start(command("sh", "-c", WAITING.format(name)), spool, started)
    process.send_signal(signal.Signals[f"SIG{name}"])
    assert process.communicate(timeout=15)[0] == f"got {name}\n".encode()
    assert process.returncode == 5


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_stop_request_ends_the_program_on_every_rank_and_the_status_is_good(
    rank: str, spool: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process = start(command("sh", "-c", TRAINING.format("TERM")), spool, started, SLURM_PROCID=rank)
    Requests(spool).issue(RUN, "stop")
    assert process.communicate(timeout=15)[0].endswith(b"got TERM\n")
    assert process.returncode == 0


def test_the_exit_status_of_a_stop_is_the_one_that_the_request_names(
    spool: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process = start(command("sh", "-c", TRAINING.format("TERM")), spool, started)
    Requests(spool).issue(RUN, "stop", '{"version": 1, "reason": "out of reach", "status": 1}')
    process.communicate(timeout=15)
    assert process.returncode == 1


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_a_request_to_save_by_file_or_by_signal_is_no_stop_and_the_exit_status_is_the_programs(
    name: str, spool: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    saves = f"trap 'echo saved' {name}; echo ready; read line; for i in 1 2 3; do echo epoch 1: loss=1; done; exit 7"
    process = subprocess.Popen(
        command("sh", "-c", f"exec 3<&0; {saves}"),
        env=environment(spool),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    started.append(process)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    Requests(spool).issue(RUN, "checkpoint")
    process.send_signal(signal.Signals[f"SIG{name}"])
    time.sleep(1)  # in which a stop would have been seen twice over
    output, _ = process.communicate(b"go\n", timeout=15)
    assert process.returncode == 7
    assert b"saved" in output


def test_the_stop_signal_can_be_chosen(spool: Path, started: list[subprocess.Popen[bytes]]) -> None:
    options = ("--pattern", PATTERN, "--stop-signal", "usr2")
    process = start(command("sh", "-c", TRAINING.format("USR2"), options=options), spool, started)
    Requests(spool).issue(RUN, "stop")
    assert process.communicate(timeout=15)[0].endswith(b"got USR2\n")


def test_an_end_that_nobody_asked_for_keeps_its_status(spool: Path, started: list[subprocess.Popen[bytes]]) -> None:
    process = start(command("sh", "-c", WAITING.format("USR1")), spool, started)
    process.terminate()
    process.communicate(timeout=15)
    assert process.returncode == 128 + signal.SIGTERM


def test_what_a_program_wrote_is_read_that_ended_before_anybody_looked(
    spool: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start = subprocess.Popen

    def ended(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        child = start(*arguments, **options)
        child.wait()
        return child

    monkeypatch.setattr(subprocess, "Popen", ended)
    status = supervise.supervise(["sh", "-c", "echo first; exit 3"], [], signal.SIGTERM, environment(spool))
    assert (status, capfd.readouterr().out) == (3, "first\n")


def test_who_is_left_behind_with_the_output_is_not_waited_for(spool: Path) -> None:
    begun = time.monotonic()
    done = run(command("sh", "-c", "sleep 20 & echo $!; echo last"), spool)
    os.kill(int(done.stdout.split()[0]), signal.SIGKILL)
    assert done.stdout.endswith(b"last\n")
    assert time.monotonic() - begun < 10


def test_a_closed_output_ends_the_program_as_it_would_without_us(spool: Path) -> None:
    endless = subprocess.Popen(command("yes"), env=environment(spool), stdout=subprocess.PIPE)
    assert endless.stdout
    endless.stdout.read(10)
    endless.stdout.close()
    assert endless.wait(timeout=15) == 128 + signal.SIGPIPE


def test_outside_slurm_the_program_runs_all_the_same(spool: Path) -> None:
    done = run(python("print('epoch 1: loss=1')"), spool, SLURM_JOB_ID="")
    assert (done.returncode, done.stdout) == (0, b"epoch 1: loss=1\n")
    assert os.listdir(spool / "reports") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pattern", "("), b"is not a regular expression"),
        (("--pattern", "loss"), b"names no quantity"),
        (("--pattern", PATTERN, "--stop-signal", "NEVER"), b"is not a signal"),
        ((), b"--pattern"),
    ],
)
def test_what_cannot_work_is_refused_before_the_program_starts(
    options: tuple[str, ...], said: bytes, spool: Path
) -> None:
    done = run(command("echo", "started", options=options), spool)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
