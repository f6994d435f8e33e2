"""Whatever is given after a job's submission, what is in force is within bounds, and can be taken back."""

from hypothesis import given
from hypothesis import strategies as st

from slurmplug.directives.changes import Change, check, in_force
from slurmplug.directives.grammar import MAX_PROBLEMS, SHOWN_BYTES, TABLE
from slurmplug.directives.parser import NAMES, Directives, parse, parse_change, without_contradictions
from slurmplug.errors import UsageError
from slurmplug.ledger import job_rows

NOW = 1_800_000_000.0

values = st.sampled_from(
    [
        "",
        "2h",
        "accuracy>=0.9",
        "loss<=0.1",
        "90",
        "target",
        "optstop",
        "iterations",
        "7",
        "2..8",
        "off",
        "on",
        "x",
        "1e9",
    ]
)
texts = st.builds("--{}={}".format, st.sampled_from([row.name for row in TABLE]), values | st.text(max_size=20))
requests = st.lists(texts | st.text(max_size=40), min_size=1, max_size=4)


def change(number: int, written: list[str]) -> Change | None:
    refused = ""
    try:
        new, taken_back = parse_change(written, now=NOW)
    except UsageError as error:
        refused = str(error)
    if refused:
        assert refused.isprintable()
        assert len(refused) < (MAX_PROBLEMS + 1) * (4 * SHOWN_BYTES + 500)
        return None
    return Change(number, NOW, 1001, "ada", f"{number}", new, taken_back)


@given(script=st.lists(texts, max_size=4), asked=st.lists(requests, max_size=5))
def test_what_is_in_force_is_consistent_and_survives_the_ledger(script: list[str], asked: list[list[str]]) -> None:
    submitted = parse("".join(f"#PLUG {line}\n" for line in script if line.isprintable()), submitted=NOW)
    made: list[Change] = []
    for number, written in enumerate(asked):
        new = change(number, written)
        if new is None:
            continue
        try:
            found = check(submitted, made, new)
        except UsageError:
            continue
        made.append(new)
        assert found == in_force(submitted, made)
        assert without_contradictions(found) == (found, {})
        for name in new.names:
            wanted = getattr(submitted if name in new.taken_back else new.given, name)
            assert getattr(found, name) in (wanted, None)
        assert job_rows.change_from_row({"id": number, **job_rows.change_row(1, new)}) == new
    for fixed in (row.name.replace("-", "_") for row in TABLE if row.fixed):
        assert getattr(in_force(submitted, made), fixed) == getattr(submitted, fixed)
    everything = Change(99, NOW, 1001, "ada", "99", Directives(), NAMES)
    assert in_force(submitted, [*made, everything]) == submitted
