"""Whatever a script says, reading its directives ends well."""

import math

from hypothesis import given
from hypothesis import strategies as st

from slurmplug.directives.grammar import MAX_PROBLEMS, SHOWN_BYTES, TABLE
from slurmplug.directives.parser import Directives, parse

NOW = 1_800_000_000.0

hostile = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300),
    st.text(alphabet=st.characters(categories=["Cs", "Cc", "Nd", "Zs"]), max_size=100),
)
settings = st.builds(
    "#PLUG --{}={}".format,
    st.sampled_from([row.name for row in TABLE]),
    st.text(max_size=40) | st.from_regex(r"[0-9:.dhmT-]+"),
)
scripts = hostile | st.lists(settings | st.text(max_size=20), max_size=10).map("\n".join)


def bounded(found: Directives) -> bool:
    return all(
        [
            found.deadline is None or NOW < found.deadline <= NOW + 3_650 * 86_400,
            found.target is None or math.isfinite(found.target.value),
            found.urgency is None or 0 <= found.urgency <= 10,
            found.max_iterations is None or 1 <= found.max_iterations <= 10**9,
            found.gpus is None or 1 <= found.gpus.least <= found.gpus.most,
            found.model_params is None or 1 <= found.model_params <= 1e15,
            found.utility is None or all(math.isfinite(value) for value in (found.utility.worth, found.utility.target)),
        ]
    )


@given(script=scripts, comment=hostile | hostile.map(lambda text: "plug: " + text if isinstance(text, str) else text))
def test_any_input_is_read_within_bounds_and_messages_are_printable_and_short(
    script: str | bytes, comment: str | bytes
) -> None:
    found = parse(script, comment, submitted=NOW)
    assert bounded(found)
    assert len(found.problems) <= MAX_PROBLEMS + 1
    for problem in found.problems:
        assert str(problem).isascii()
        assert str(problem).isprintable()
        assert len(problem.text) <= 4 * SHOWN_BYTES + 3


@given(script=st.text(max_size=300))
def test_a_script_reads_alike_as_text_and_as_bytes(script: str) -> None:
    assert parse(script, submitted=NOW) == parse(script.encode("utf-8", "surrogatepass"), submitted=NOW)


@given(
    submitted=st.floats(),
    value=st.sampled_from(["2h", "18:00", "tomorrow 18:00", "2026-12-01T18:00", "2026-12-01T18:00Z"]),
)
def test_any_submission_time_is_survived(submitted: float, value: str) -> None:
    found = parse(f"#PLUG --deadline={value}", submitted=submitted)
    assert found.deadline is None or found.deadline > submitted


@given(
    script=scripts, command=st.sampled_from(["srun x", "export A=1", "PLUG --urgency=3"]), after=st.text(max_size=50)
)
def test_nothing_after_the_first_command_counts(script: str | bytes, command: str, after: str) -> None:
    head = script.encode("utf-8", "surrogatepass") if isinstance(script, str) else script
    ended = head + b"\n" + command.encode() + b"\n"
    assert parse(ended + after.encode(), submitted=NOW) == parse(ended, submitted=NOW)
