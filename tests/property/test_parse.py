"""Nothing that a user writes changes what is read of another job, or how many jobs there are."""

from hypothesis import given
from hypothesis import strategies as st

from slurmplug.cluster import parse
from slurmplug.cluster.parse import JOB_FIELDS, Separators
from slurmplug.errors import ReadFailed

SEPARATORS = Separators("fK3a9Qz", "rT7b0Wm")
NOW = 1_796_000_000.0
WRITTEN = ("Name", "Comment", "Dependency", "Feature")
NUMBERS = (
    "JobID",
    "ArrayJobID",
    "UserID",
    "BatchFlag",
    "RestartCnt",
    "PriorityLong",
    "Nice",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
)

pieces = st.sampled_from(
    ["\n", "\r", "\t", "\x1f", "\x1e", "\x1d", "\x01", "|", ",", ":", " ", "%s", "(null)", "N/A", "=", "\x7f", "é",
     "99|99|PENDING", "fK3a9Q", "rT7b0W", "z\n", "m\n", "END", "JobId=1", "\ufffd", "\u2028", "\x85"]
)  # fmt: skip
texts = (
    st.lists(pieces, max_size=12)
    .map("".join)
    .filter(lambda text: SEPARATORS.field not in text and SEPARATORS.record not in text)
)
bytes_ = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "replace"))
written = st.one_of(texts, bytes_).filter(lambda text: SEPARATORS.field not in text and SEPARATORS.record not in text)


def record(job_id: int, **fields: str) -> str:
    fields = {
        **dict.fromkeys(JOB_FIELDS, "N/A"),
        **dict.fromkeys(NUMBERS, "1"),
        "exit_code": "0",
        "State": "PENDING",
        "JobID": str(job_id),
        **fields,
    }
    return SEPARATORS.field.join(fields[name] for name in JOB_FIELDS) + SEPARATORS.record + "\n"


@given(st.lists(st.tuples(written, written), max_size=5))
def test_every_job_is_read_as_it_is_whatever_is_written_in_names_and_comments(jobs: list[tuple[str, ...]]) -> None:
    text = "".join(record(at + 1, Name=name, Comment=comment) for at, (name, comment) in enumerate(jobs))
    rows = parse.queue(text, SEPARATORS, NOW).rows
    assert rows.job_id.tolist() == list(range(1, len(jobs) + 1))
    nothing = {"(null)", "N/A"}
    assert rows.name.tolist() == ["" if name in nothing else name for name, _ in jobs]
    assert rows.comment.tolist() == ["" if comment in nothing else comment for _, comment in jobs]


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_bytes_that_are_not_utf_8_cannot_swallow_a_mark(name: bytes, comment: bytes) -> None:
    name, comment = name.replace(b"\0", b""), comment.replace(b"\0", b"")
    data = record(1, Name="<name>", Comment="<comment>").encode() + record(2).encode()
    data = data.replace(b"<name>", name).replace(b"<comment>", comment)
    rows = parse.queue(data.decode("utf-8", "replace"), SEPARATORS, NOW).rows
    assert rows.job_id.tolist() == [1, 2]


@given(st.integers(1, 5), st.data())
def test_a_queue_that_was_cut_off_is_no_queue(jobs: int, data: st.DataObject) -> None:
    text = "".join(record(at + 1) for at in range(jobs))
    ends = {end + len(SEPARATORS.record) + 1 for end in range(len(text)) if text.startswith(SEPARATORS.record, end)}
    cut = data.draw(st.integers(1, len(text) - 1).filter(lambda at: at not in ends))
    try:
        parse.queue(text[:cut], SEPARATORS, NOW)
    except ReadFailed:
        return
    raise AssertionError("half a record was read")


def evenly_apart(tasks: set[int]) -> bool:
    steps = {after - before for before, after in zip(sorted(tasks), sorted(tasks)[1:], strict=False)}
    return len(steps) == 1 and steps != {1}


def elements_of(tasks: set[int]) -> tuple[int, set[int]]:
    """How many elements are read, and which tasks are addressed, of an array whose tasks are listed."""
    found = parse.queue(
        "".join(record(9, ArrayJobID="9", ArrayTaskID=str(task)) for task in sorted(tasks)), SEPARATORS, NOW
    )
    ranges = [[int(end) for end in each.split("-")] for each in found.addresses[9][2:].strip("[]").split(",")]
    (elements,) = found.rows.elements.tolist()
    return elements, {task for each in ranges for task in range(each[0], each[-1] + 1)}


@given(st.sets(st.integers(0, 400), min_size=1, max_size=60).filter(lambda tasks: not evenly_apart(tasks)))
def test_elements_that_wait_together_count_and_are_addressed_each_once(tasks: set[int]) -> None:
    assert elements_of(tasks) == (len(tasks), tasks)


@given(st.integers(0, 50), st.integers(2, 9), st.integers(6, 60))
def test_the_last_of_evenly_spaced_tasks_which_squeue_drops_is_added(first: int, step: int, listed: int) -> None:
    tasks = set(range(first, first + step * listed, step))
    assert elements_of(tasks) == (listed + 1, tasks | {max(tasks) + step})
