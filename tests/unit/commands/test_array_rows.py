from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.commands.array_rows import one_by_one
from tests.ledgers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


@pytest.mark.parametrize(
    ("tasks", "most", "expected"),
    [
        ("0-2,7", 10, ["1_0", "1_1", "1_2", "1_7"]),
        ("0-10:5", 10, ["1_0", "1_5", "1_10"]),
        ("3,9", 2, ["1_3", "1_9"]),
        ("0-3999999", 2, ["1_0", "1_1", "1_[2-3999999]"]),
        ("0-3999999", 0, ["1_[0-3999999]"]),
        ("0-10:5,20,30-40", 1, ["1_0", "1_[5-10:5,20,30-40]"]),
        ("0-1,5-6", 3, ["1_0", "1_1", "1_5", "1_[6]"]),
    ],
)
def test_each_element_has_a_row_up_to_a_limit(tasks: str, most: int, expected: list[str]) -> None:
    values = {"jobid": ["7", f"1_[{tasks}]", "8_2"], "arraytasks": ["", tasks, ""], "state": ["R", "PD", "R"]}
    found = one_by_one(values, most)
    assert found["jobid"] == ["7", *expected, "8_2"]
    assert found["state"] == ["R", *["PD"] * len(expected), "R"]


def test_a_queue_by_element_has_what_the_array_has(site: Site) -> None:
    site.cluster.submit(array_id=1, elements=3, array_tasks="0-1,5", name="sweep")
    site.cluster.submit(name="alone")
    site.cluster.submit(array_id=3, elements=9)  # an older release did not read which elements wait
    site.cycle()
    assert site.ask("queue", "-n", "-o", "%i").split() == ["1_[0-1,5]", "2", "3_[x9]"]
    assert site.ask("queue", "-r", "-n", "-o", "%i %j").splitlines() == [
        "1_0 sweep", "1_1 sweep", "1_5 sweep", "2 alone", "3_[x9] train",
    ]  # fmt: skip
    assert [row["jobid"] for row in site.json("queue", "-r")["jobs"]] == ["1_0", "1_1", "1_5", "2", "3_[x9]"]
    assert [row["jobid"] for row in site.json("acct", "-j", "1")["jobs"]] == ["1_[0-1,5]"]
