"""The table of directives, from which parser, messages, documentation and submit-time check are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PREFIX = "#PLUG"
COMMENT_PREFIX = "plug:"

HEAD_BYTES = 65_536
"""How much of a script is read, in bytes."""
HEAD_LINES = 2_000
"""How many lines of a script are read."""
LINE_BYTES = 1_024
"""The longest #PLUG line, or comment, that is read."""
VALUE_BYTES = 128
"""The longest value of a directive."""
SHOWN_BYTES = 60
"""How much of a user's text a message quotes."""
MAX_PROBLEMS = 10
"""How many problems are named; the rest are counted."""
HORIZON_DAYS = 3_650
"""How far ahead a deadline may lie."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive: its name, the kind of its value, and its documentation.

    `least` and `most` bound a number; `choices` are the words of a choice. `fixed`: why it cannot change after the
    submission; empty where it can.
    """

    name: str
    kind: str
    expected: str
    unit: str
    default: str
    help: str
    example: str
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    fixed: str = ""


TABLE: tuple[Directive, ...] = (
    Directive(
        name="deadline",
        kind="deadline",
        expected="a span (2h, 90m, 1d12h, 1-12:00:00), a time of day (18:00, tomorrow 18:00) "
        "or a date and time (2026-12-01T18:00)",
        unit="date and time",
        default="the policy's (MLFS: 7 days)",
        help="When the result is needed. A span counts from submission. A time without a zone is in the cluster's time "
        "zone.",
        example="tomorrow 18:00",
    ),
    Directive(
        name="target",
        kind="target",
        expected="a reported quantity, >= or <=, and a number, or a percentage (accuracy>=92% is accuracy>=0.92)",
        unit="the quantity's",
        default="none",
        help="What the model must reach: at least (>=) or at most (<=) this value of a quantity that the job reports.",
        example="accuracy>=0.92",
    ),
    Directive(
        name="require-target",
        kind="choice",
        expected="yes",
        unit="",
        default="no: a stopped job does not fail",
        help="The job fails if it is stopped before it has met its target: the program is told to exit with status 1, "
        "so that jobs that depend on this one with afterok do not run.",
        example="yes",
        choices=("yes",),
    ),
    Directive(
        name="trials",
        kind="choice",
        expected="all or first",
        unit="",
        default="one training, unless its reports show several",
        help="The script trains several models, one after the other (folds, a sweep). With all, each of them runs to "
        "its end, whatever its curve shows; with first, the first that meets the target ends the job.",
        example="all",
        choices=("all", "first"),
    ),
    Directive(
        name="max-iterations",
        kind="integer",
        expected="a whole number from 1 to 1000000000",
        unit="iterations",
        default="unknown",
        help="How many iterations the script runs if it is not stopped; with several trials, how many each of them "
        "runs.",
        example="90",
        least=1,
        most=1e9,
    ),
    Directive(
        name="stop",
        kind="stop",
        expected="iterations, target or optstop, or optstop: and a reported quantity (optstop:val_loss)",
        unit="",
        default="iterations",
        help="When to stop: after all iterations (iterations); as soon as the target is met (target); or also when "
        "the training has diverged, no better value is likely, or the target is out of reach (optstop). By default the "
        "quantity is that of the target, else accuracy, else one measured on validation data.",
        example="optstop",
        choices=("iterations", "target", "optstop"),
    ),
    Directive(
        name="allow-downgrade",
        kind="choice",
        expected="target or optstop",
        unit="",
        default="none",
        help="When the job may also be stopped while the cluster is overloaded; the values mean the same as in --stop.",
        example="optstop",
        choices=("target", "optstop"),
    ),
    Directive(
        name="urgency",
        kind="number",
        expected="a number from 0 to 10",
        unit="",
        default="the policy's (MLFS: 5)",
        help="How urgent the job is among its user's jobs; a site may limit it.",
        example="7",
        least=0,
        most=10,
    ),
    Directive(
        name="gpus",
        kind="range",
        expected="a number of GPUs (4) or a range (2..8)",
        unit="GPUs",
        default="as submitted",
        help="How many GPUs the job can train on. With a range, it may start on another number than it requests; with "
        "--checkpoint, the number may also change later.",
        example="2..8",
        least=1,
        most=10_000,
    ),
    Directive(
        name="checkpoint",
        kind="checkpoint",
        expected="a signal or file, then :batch, :steps or :full, then @ and the grace "
        "(USR1, USR1:batch, TERM:full@2m, file@60)",
        unit="",
        default="none: never moved, and never resized while it runs",
        help="How to request a checkpoint: by a signal to the batch script (batch), to the steps (steps, the default, "
        "as with sbatch --signal) or to both (full); or by a file (file), if the program calls checkpoint_requested(). "
        "The grace is the time that saving may take, in seconds or as 2m.",
        example="USR1:batch@120",
        choices=("USR1", "USR2", "TERM", "INT", "HUP", "CONT"),
        least=1,
        most=86_400,
        fixed="the submitted script determines what the program does with a request",
    ),
    Directive(
        name="type",
        kind="name",
        expected="a name of at most 64 letters, digits, '.', '_' and '-'",
        unit="",
        default="the job's name",
        help="The kind of training. Predictions for a job are learnt from finished jobs of its type.",
        example="resnet50",
        fixed="predictions for the type with which the run began are learnt from it",
    ),
    Directive(
        name="ml-job",
        kind="name",
        expected="a name of at most 64 letters, digits, '.', '_' and '-'",
        unit="",
        default="the job alone",
        help="Groups the Slurm jobs of one user that train one model together (not the jobs of a sweep).",
        example="resnet50-run7",
        fixed="which jobs train one model is stated when they are submitted",
    ),
    Directive(
        name="params",
        kind="params",
        expected="a number of parameters (25600000, 25.6M, 1.3B), or sizes and kinds of the work by their names "
        "(rows:2000,classes:10,operation:sort), or both, the number first",
        unit="parameters",
        default="an equal share of the model; nothing about the work",
        help="How many parameters of the model this job holds. Sizes and kinds of the work are what its run time "
        "depends on; the predictor svr learns from them.",
        example="25.6M",
        least=1,
        most=1e15,
        fixed="the submitted script determines the model",
    ),
    Directive(
        name="role",
        kind="choice",
        expected="worker or ps",
        unit="",
        default="worker",
        help="What the job is in its ML job: a worker or a parameter server.",
        example="ps",
        choices=("worker", "ps"),
        fixed="the submitted script determines the role",
    ),
    Directive(
        name="utility",
        kind="utility",
        expected="three numbers: worth (1 to 100), steepness per hour (0 to 100), and the hours after which it halves "
        "(up to 100000)",
        unit="worth, 1/hour, hours",
        default="none: not subject to admission",
        help="What it is worth that the job finishes x hours after submission: th1 / (1 + exp(th2 (x - th3))), the "
        "utility of OASiS, where th1, th2 and th3 are the three numbers.",
        example="50,0.5,12",
        fixed="admission decides by the utility at submission",
    ),
    Directive(
        name="manage",
        kind="choice",
        expected="off or on",
        unit="",
        default="on if there is any other directive",
        help="With off, the job is left to Slurm: it is neither ranked nor changed. With on, it is ranked even if it "
        "has no other directive.",
        example="off",
        choices=("off", "on"),
    ),
    Directive(
        name="notify",
        kind="choice",
        expected="off or on",
        unit="",
        default="as the site sets",
        help="Whether you get mail, if the site sends any, about what was done to the job and what is wrong with it.",
        example="on",
        choices=("off", "on"),
    ),
)

SUFFIXES: Mapping[str, float] = MappingProxyType({"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12})
WAYS = ("batch", "steps", "full")
MAX_SIZE = 1e15
"""The largest size of a job's work."""
UTILITY_BOUNDS = ((1.0, 100.0), (0.0, 100.0), (0.0, 100_000.0))
MAX_TARGET = 1e30
NEEDS_TARGET = (("stop", "target"), ("allow-downgrade", "target"), ("require-target", "yes"), ("trials", "first"))
"""Directives that are dropped, with these values, where there is no target."""
RESERVED_QUANTITIES = ("iteration", "time", "checkpoint", "trial")
"""Fields of a report that are not quantities."""

MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "prefix": "write #PLUG in capitals",
        "long": f"longer than {LINE_BYTES} bytes",
        "form": "write --name=value",
        "bytes": "has a character that is not plain ASCII",
        "unknown": "no such directive",
        "value": "expected %s, for example %s",
        "past": "lies before the submission",
        "far": f"lies more than {HORIZON_DAYS} days ahead",
        "repeated": "given twice: leave one out (of an accepted job the first one counts)",
        "no-target": "needs --target",
        "other-quantity": "names another quantity than --target",
        "no-direction": "whether more or less of it is better is not known: name it in --target",
        "no-further": "goes no further than --stop already does",
        "head": f"what follows the first {HEAD_LINES} lines or {HEAD_BYTES} bytes is not read",
        "more": "%d more",
    }
)
WARNINGS: Mapping[str, str] = MappingProxyType(
    {
        "after": "follows the first command, where #PLUG is not read: write it above",
        "blank": "is not read: write #PLUG, without a blank, if it is a directive",
        "colon": "is not read: write plug: in small letters and with a colon, if it has directives",
        "no-length": "without --max-iterations it is not forecast how the training ends, so optstop stops the job only "
        "at its --target, or if its training diverges",
        "start-only": "without --checkpoint the number of GPUs changes only before the job starts",
        "no-requeue": "with --no-requeue the number of GPUs changes only before the job starts",
        "not-here": "the number of GPUs is not changed: %s",
    }
)
"""What sbatch shows of a job that it accepts: lines that were probably meant to be read, and options without effect.
The last two are known at submission only: how Slurm requeues the job, and what the site has said in its site.lua."""
MESSAGES_OF_CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "passed": "lies in the past",
        "fixed": "cannot change after the submission: %s",
    }
)
"""Further messages, for a directive that is changed after the submission."""
