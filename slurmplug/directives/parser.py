"""The parser of directives in a batch script's `#PLUG` lines or in a `plug:` comment.

It is pure and treats every input as hostile: it reads bytes within the limits of `grammar`, in linear time, and never
raises. An invalid directive becomes a `Problem`; the others take effect. The submit-time check,
`site_config/slurmplug.lua`, reports the same problems for the same text.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Literal, cast

from slurmplug.directives import grammar, quantities
from slurmplug.directives.grammar import MESSAGES, MESSAGES_OF_CHANGES, TABLE, WARNINGS, Directive
from slurmplug.directives.values import Checkpoint, Clock, GpuRange, InvalidValue, Params, Target, Utility, read
from slurmplug.errors import UsageError

__all__ = ["Checkpoint", "Directives", "GpuRange", "Problem", "Stop", "Target", "Utility", "parse", "shown"]

Stop = Literal["iterations", "target", "optstop"]
"""The options of --stop; see `policies.mlfs.stop_rules.MAY_STOP`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A directive that was ignored, and why; or what of a job probably was meant otherwise.

    `line` is the script's line, from 1; 0 is the comment. `text` is the directive, shortened, with every byte that is
    not printable ASCII escaped. `rule` is a key of `grammar.MESSAGES` or of `WARNINGS`, `nearest` the valid word that
    was probably meant, or "".
    """

    line: int
    text: str
    rule: str
    message: str
    nearest: str = ""

    def __str__(self) -> str:
        if self.rule == "more":
            return self.message
        return f"line {self.line}: {self.without_place}" if self.line else f"comment: {self.without_place}"

    @property
    def without_place(self) -> str:
        """The problem, without where it was found."""
        meant = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.text}: {self.message}{meant}" if self.text else f"{self.message}{meant}"


@dataclass(frozen=True, slots=True)
class Directives:
    """The values of a job's directives, None for those not given. `deadline` is in seconds since the epoch; `stop` is
    an option, with a colon and a quantity where one was named."""

    deadline: float | None = None
    target: Target | None = None
    require_target: Literal["yes"] | None = None
    trials: Literal["all", "first"] | None = None
    max_iterations: int | None = None
    stop: str | None = None
    allow_downgrade: Literal["target", "optstop"] | None = None
    urgency: float | None = None
    gpus: GpuRange | None = None
    checkpoint: Checkpoint | None = None
    type: str | None = None
    ml_job: str | None = None
    params: float | Params | None = None
    role: Literal["worker", "ps"] | None = None
    utility: Utility | None = None
    manage: Literal["off", "on"] | None = None
    notify: Literal["off", "on"] | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    """lines that are not read and were probably meant to be, and options that had no effect as the job was submitted"""

    @property
    def managed(self) -> bool:
        """Whether slurmplug may act on the job: there is no --manage=off."""
        return self.manage != "off"

    @property
    def model_params(self) -> float | None:
        """The parameters of the model that the job holds."""
        return self.params.model if isinstance(self.params, Params) else self.params

    @property
    def work(self) -> str:
        """Sizes and kinds of the job's work, as `Params.text` has them; empty for none."""
        return self.params.text if isinstance(self.params, Params) else ""

    @property
    def stop_option(self) -> Stop:
        """The option of --stop."""
        return cast(Stop, (self.stop or "iterations").partition(":")[0])

    @property
    def stop_quantity(self) -> str:
        """The quantity that --stop names; empty for none."""
        return (self.stop or "").partition(":")[2]


def parse(
    script: str | bytes = b"", comment: str | bytes = b"", *, submitted: float, zone: tzinfo | None = None
) -> Directives:
    """The directives of a job. The comment, given at the command line, overrides the script. Never raises.

    Args:
        script: the batch script.
        comment: the job's comment (sbatch --comment).
        submitted: the first submission in seconds since the epoch, from which a span counts.
        zone: the cluster's time zone, for times of day; None for this machine's.
    """
    problems, warnings = _Problems(), _Problems()
    clock = Clock(submitted, zone)
    given = _accept(_of_script(_encoded(script, grammar.HEAD_BYTES), problems, warnings), clock, problems)
    given |= _accept(_of_comment(_encoded(comment, grammar.LINE_BYTES), problems, warnings), clock, problems)
    _drop_contradictions(given, problems)
    _warn_of_no_effect(given, warnings)
    values = {name.replace("-", "_"): one.value for name, one in given.items()}
    return Directives(**values, problems=problems.named(), warnings=warnings.named())


NAMES = tuple(name for name in Directives.__dataclass_fields__ if name not in ("problems", "warnings"))
"""The fields of `Directives` that are directives."""


def parse_change(
    written: Iterable[str], *, now: float, zone: tzinfo | None = None
) -> tuple[Directives, tuple[str, ...]]:
    """Directives that are given after a job's submission: the new ones, and the fields of those that are taken back.

    Args:
        written: each as `--name=value`; without a value the directive is taken back to what script and comment say.
        now: seconds since the epoch, from which a span counts.
        zone: as for `parse`.

    Raises:
        UsageError: one of them is not valid; the message names every mistake.
    """
    problems = _Problems()
    settings = [_Setting(0, _encoded(text, grammar.LINE_BYTES)) for text in written]
    taken_back = [setting for setting in settings if setting.text.endswith(b"=")]
    given = _accept(iter(settings), Clock(now, zone), problems, later=True)
    if problems.found:
        raise UsageError("; ".join(each.without_place for each in problems.named()))
    values = {name.replace("-", "_"): one for name, one in given.items()}
    return (
        Directives(**{name: one.value for name, one in values.items() if one.setting not in taken_back}),
        tuple(name for name, one in values.items() if one.setting in taken_back),
    )


def without_contradictions(directives: Directives) -> tuple[Directives, Mapping[str, Problem]]:
    """The directives without those that others of them contradict, and by field the problem of each of these."""
    options = {name: f"--{name.replace('_', '-')}" for name in NAMES}
    problems = _Problems()
    given = {
        option.removeprefix("--"): _Given(_Setting(0, option.encode("ascii")), value)
        for name, option in options.items()
        if (value := getattr(directives, name)) is not None
    }
    _drop_contradictions(given, problems)
    by_option = {problem.text: problem for problem in problems.found}
    dropped = {name: by_option[option] for name, option in options.items() if option in by_option}
    nothing: dict[str, Any] = dict.fromkeys(dropped)
    return replace(directives, **nothing), dropped


@dataclass(frozen=True, slots=True)
class _Setting:
    line: int
    text: bytes


@dataclass(frozen=True, slots=True)
class _Given:
    setting: _Setting
    value: Any


@dataclass(slots=True)
class _Problems:
    found: list[Problem] = field(default_factory=list)
    more: int = 0

    def add(self, line: int, text: bytes, rule: str, row: Directive | None = None) -> None:
        if len(self.found) == grammar.MAX_PROBLEMS:
            self.more += 1
            return
        self.found.append(Problem(line, shown(text), rule, _message(rule, row), _nearest(text, rule, row)))

    def named(self) -> tuple[Problem, ...]:
        if self.more:
            return (*self.found, Problem(0, "", "more", MESSAGES["more"] % self.more))
        return tuple(self.found)


def _message(rule: str, row: Directive | None) -> str:
    if row and rule == "fixed":
        return MESSAGES_OF_CHANGES[rule] % row.fixed
    if row and rule == "value":
        return MESSAGES[rule] % (row.expected, f"--{row.name}={row.example}")
    return MESSAGES.get(rule) or WARNINGS.get(rule) or MESSAGES_OF_CHANGES[rule]


def shown(text: bytes) -> str:
    """A user's text as printable ASCII for terminals and logs: shortened, other bytes escaped."""
    cut = text[: grammar.SHOWN_BYTES]
    safe = "".join(chr(byte) if 0x20 <= byte <= 0x7E else f"\\x{byte:02x}" for byte in cut)
    return safe + "..." if len(text) > len(cut) else safe


def _nearest(text: bytes, rule: str, row: Directive | None) -> str:
    name, _, value = text.decode("latin-1").partition("=")
    if rule == "unknown":
        return "".join(f"--{word}" for word in _close(name.lstrip("-"), [each.name for each in TABLE]))
    if rule == "value" and row and row.kind in ("choice", "stop"):
        return "".join(f"--{row.name}={word}" for word in _close(value, list(row.choices)))
    return ""


def _close(word: str, words: list[str]) -> list[str]:
    return difflib.get_close_matches(word, words, n=1) if len(word) <= 32 else []


def _encoded(text: str | bytes, most: int) -> bytes:
    """The first `most` bytes, and one more of a longer text."""
    cut = text[: most + 1]
    return (cut if isinstance(cut, bytes) else cut.encode("utf-8", "surrogatepass"))[: most + 1]


# Finding the directives -----------------------------------------------------------------------------------------------

_BLANKS = b" \t\r\v\f"
_BETWEEN = re.compile(rb"[ \t]+")
_SETTING = re.compile(rb"-{0,2}[A-Za-z][A-Za-z0-9_-]*=")
_BLANK = re.compile(rb"PLUG +--", re.IGNORECASE)


def _of_script(script: bytes, problems: _Problems, warnings: _Problems) -> Iterator[_Setting]:
    prefix = grammar.PREFIX.encode()
    head = script[: grammar.HEAD_BYTES]
    lines = head.split(b"\n", grammar.HEAD_LINES)
    cut = len(script) > len(head) or len(lines) > grammar.HEAD_LINES
    if cut:
        lines.pop()
    any_directive = commands = False
    for number, whole in enumerate(lines, 1):
        line = whole.strip(_BLANKS)
        commands = commands or bool(line and not line.startswith(b"#"))
        word, _, rest = line.replace(b"\t", b" ").partition(b" ")
        rest = rest.lstrip(b" ")
        if commands:
            if word == prefix and rest.startswith(b"--"):
                warnings.add(number, line, "after")
                return
            continue
        if word != prefix:
            if word.upper() == prefix and rest.startswith(b"--"):
                problems.add(number, line, "prefix")
            elif word == b"#" and _BLANK.match(rest):
                warnings.add(number, line, "blank")
            continue
        any_directive = True
        if len(line) > grammar.LINE_BYTES:
            problems.add(number, line, "long")
        else:
            yield from _settings(number, rest, lambda each: each.startswith(b"--"), problems)
    if cut and any_directive and not commands:
        problems.add(len(lines), b"", "head")


def _of_comment(comment: bytes, problems: _Problems, warnings: _Problems) -> Iterator[_Setting]:
    prefix = grammar.COMMENT_PREFIX.encode()
    text = comment.lstrip(_BLANKS)
    if not text.startswith(prefix):
        word, _, rest = text[: grammar.LINE_BYTES].replace(b"\t", b" ").partition(b" ")
        if word.lower() in (prefix, prefix.rstrip(b":")) and _SETTING.match(rest.lstrip(b" ")):
            warnings.add(0, text, "colon")
        return
    if len(comment) > grammar.LINE_BYTES:
        problems.add(0, text, "long")
        return
    yield from _settings(0, text[len(prefix) :], lambda each: _SETTING.match(each) is not None, problems)


def _settings(line: int, text: bytes, begins: Callable[[bytes], bool], problems: _Problems) -> Iterator[_Setting]:
    """The settings of a line: each extends from a word that `begins` to the next such word, or to a ` #`."""
    words: list[bytes] = []
    any_word = False
    for word in _BETWEEN.split(text.strip(_BLANKS)):
        if not word or word.startswith(b"#"):
            break
        any_word = True
        if begins(word):
            if words:
                yield _Setting(line, b" ".join(words))
            words = [word]
        elif words:
            words.append(word)
        else:
            problems.add(line, word, "form")
    if words:
        yield _Setting(line, b" ".join(words))
    elif not any_word:
        problems.add(line, b"", "form")


# Validating them ------------------------------------------------------------------------------------------------------

_ROWS: Mapping[str, Directive] = {row.name: row for row in TABLE}


def _accept(
    settings: Iterator[_Setting], clock: Clock, problems: _Problems, *, later: bool = False
) -> dict[str, _Given]:
    """The valid ones by name. `later`: they are given after the submission, where an empty value takes one back."""
    given: dict[str, _Given] = {}
    for setting in settings:
        text = setting.text
        if not all(0x20 <= byte <= 0x7E for byte in text):
            problems.add(setting.line, text, "bytes")
            continue
        written, equals, value = text.decode("ascii").partition("=")
        name, blank, _ = written.lstrip("-").partition(" ")
        row = _ROWS.get(name)
        if not row:
            problems.add(setting.line, text, "unknown")
        elif not equals or blank:
            problems.add(setting.line, text, "form")
        elif name in given:
            problems.add(setting.line, text, "repeated")
        elif later and row.fixed:
            problems.add(setting.line, text, "fixed", row)
        elif later and not value:
            given[name] = _Given(setting, None)
        else:
            try:
                given[name] = _Given(setting, read(value, row, clock))
            except InvalidValue as invalid:
                rule = "passed" if later and str(invalid) == "past" else str(invalid)
                problems.add(setting.line, text, rule, row)
    return given


def _drop_contradictions(given: dict[str, _Given], problems: _Problems) -> None:
    def drop(name: str, rule: str) -> None:
        setting = given.pop(name).setting
        problems.add(setting.line, setting.text, rule)

    for name, value in grammar.NEEDS_TARGET:
        if name in given and given[name].value == value and "target" not in given:
            drop(name, "no-target")
    if "stop" in given and (quantity := given["stop"].value.partition(":")[2]):
        if "target" in given and given["target"].value.quantity != quantity:
            drop("stop", "other-quantity")
        elif "target" not in given and quantities.known(quantity) is None:
            drop("stop", "no-direction")
    if "allow-downgrade" in given and "stop" in given:
        option = given["stop"].value.partition(":")[0]
        if given["allow-downgrade"].value == option:
            drop("allow-downgrade", "no-further")


def _warn_of_no_effect(given: dict[str, _Given], warnings: _Problems) -> None:
    optstop = next((given[name] for name in ("stop", "allow-downgrade") if _is_optstop(given.get(name))), None)
    if optstop and "max-iterations" not in given:
        warnings.add(optstop.setting.line, optstop.setting.text, "no-length")
    if "gpus" in given and "checkpoint" not in given and given["gpus"].value.least < given["gpus"].value.most:
        warnings.add(given["gpus"].setting.line, given["gpus"].setting.text, "start-only")


def _is_optstop(one: _Given | None) -> bool:
    return one is not None and one.value.partition(":")[0] == "optstop"
