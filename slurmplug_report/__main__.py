"""`slurmplug-report run` and `slurmplug-report report`, which are `slurmplug run` and `slurmplug report` too.

This imports the standard library only and runs on Python 3.8.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Sequence

from slurmplug_report.log_files import CsvLog
from slurmplug_report.report import Reporter
from slurmplug_report.supervise import supervise

if TYPE_CHECKING:
    from slurmplug_report.tensorboard_log import TensorBoardLog


def main(arguments: Sequence[str] | None = None, program: str = "slurmplug-report") -> int:
    """Do what the arguments ask, by default those of this process; returns the exit status.

    Raises SystemExit with status 2 where they are wrong.
    """
    found = parser(program).parse_args(arguments)
    if found.action == "report":
        values = dict(found.values)
        if "iteration" not in values and "checkpoint" not in values:
            parser(program).error("name the iteration, such as iteration=3, or a checkpoint")
        return _report(values)
    command = found.command[1:] if found.command[:1] == ["--"] else found.command
    if not command:
        parser(program).error("name the program to run after --")
    logs: dict[str, CsvLog | TensorBoardLog] = {path: CsvLog(path) for path in found.csv}
    logs.update((folder, _tensorboard(folder)) for folder in found.tensorboard)
    if not found.pattern and not logs:
        parser(program).error("say where its progress is: --pattern, --csv or --tensorboard")
    return supervise(command, found.pattern, found.stop_signal, os.environ, logs)


def _tensorboard(folder: str) -> TensorBoardLog:
    try:
        from slurmplug_report.tensorboard_log import TensorBoardLog  # noqa: PLC0415 it is there for who logs with it
    except ImportError as error:
        sys.exit(f"slurmplug: --tensorboard needs the package tensorboard: pip install tensorboard ({error})")
    return TensorBoardLog(folder)


def _report(values: dict[str, str]) -> int:
    """One report; prints why the job is requested to stop. What prevents it does not change the status."""
    reporter = Reporter.from_environment(os.environ)
    if reporter is None or not reporter.writes:
        return 0
    trial, iteration, checkpoint = (values.pop(name, None) for name in ("trial", "iteration", "checkpoint"))
    reporter.add(iteration, checkpoint, values, int(trial) if trial and trial.isdecimal() else trial)
    stop = reporter.write_now()
    if stop:
        print(stop.reason)
    return 0


def parser(program: str) -> argparse.ArgumentParser:
    """The grammar of the command line of `program`."""
    whole = argparse.ArgumentParser(prog=program, description="Report the progress of a training job to slurmplug.")
    actions = whole.add_subparsers(dest="action", metavar="run|report", required=True)
    run = actions.add_parser(
        "run",
        help="run a program and report its progress from what it prints, or logs in files",
        description="Run COMMAND and report its progress from what it prints, or logs in files. Output, signals and "
        "exit status pass through unchanged; if the program ended because the job was requested to stop, the status "
        "is 0, or 1 where the script requires its target and that is not met.",
        usage=f"{program} run [--pattern REGEX]... [--csv FILE]... [--tensorboard FOLDER]... [--stop-signal NAME] "
        "-- COMMAND ...",
    )
    run.add_argument(
        "--pattern",
        type=_pattern,
        action="append",
        default=[],
        metavar="REGEX",
        help="a Python regular expression, searched in every line of output; its named groups are reported: "
        "iteration, trial, loss, accuracy, checkpoint, or any other quantity; may be given several times",
    )
    run.add_argument(
        "--csv",
        action="append",
        default=[],
        metavar="FILE",
        help="a CSV file that the program writes, whose first line names its columns: iteration, epoch, step or "
        "global_step, and quantities; may be given several times",
    )
    run.add_argument(
        "--tensorboard",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder with event files of TensorBoard that the program writes: its scalars are reported; needs the "
        "package tensorboard; may be given several times",
    )
    run.add_argument(
        "--stop-signal",
        type=_signal,
        default="TERM",
        metavar="NAME",
        help="the signal sent to the program when the job is requested to stop (default: TERM)",
    )
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    report = actions.add_parser(
        "report",
        help="report once, from a shell or another language",
        description="Report progress, as report() does in Python: iteration=3 loss=0.41 accuracy=0.87, checkpoint=3, "
        "trial=2, ... Prints why the job is requested to stop, and nothing if it is not. Outside Slurm, and on ranks "
        "other than 0, it does nothing; what prevents a report is printed on standard error and does not change the "
        "exit status.",
    )
    report.add_argument("values", nargs="+", type=_value, metavar="NAME=VALUE")
    return whole


def _pattern(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error
    if not pattern.groupindex:
        raise argparse.ArgumentTypeError(f"{text!r} names no quantity: write groups such as (?P<loss>[0-9.]+)")
    return pattern


def _signal(text: str) -> signal.Signals:
    name = text.upper()
    try:
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a signal: write TERM, INT, USR1, ...") from None


def _value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.isidentifier() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE, such as loss=0.41")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
