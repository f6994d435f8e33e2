"""Inputs as differences: the same value again, bit by bit, in a fraction of the bytes."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from slurmplug.ledger import codec
from slurmplug.ledger.differences import difference, parts, restored, whole
from tests.ledgers import Site


def same(one: object, other: object) -> bool:
    return codec.dumps(one) == codec.dumps(other)


def test_a_value_comes_back_bit_by_bit_whatever_changed() -> None:
    random = np.random.default_rng(1)
    before, base = {"a": np.zeros(3), "b": np.array(["x"] * 9)}, [1, 2, 3]
    for _ in range(200):
        n = int(random.integers(0, 9))
        jobs = random.permutation(12)[:n].tolist()
        value = {
            "a": random.choice([0.0, -0.0, np.nan, np.inf, 1.5, 1e300], n) + random.choice([0.0, 60.0]),
            "b": np.array([f"job {job}" for job in jobs] or ["none"]),
            "c": random.integers(0, 3, (n, 2)),
            "d": [float(n)] if n % 2 else {},
            "e": np.float64(random.normal()) * np.ones((n, 3)),
        }
        given, earlier = parts(value, jobs), parts(before, base)
        assert same(restored(difference(given, earlier), whole(earlier)), codec.loads(whole(given)))
        before, base = value, jobs


def test_what_is_no_difference_is_refused() -> None:
    given = whole(parts({"a": np.zeros(3)}, [1]))
    with pytest.raises(ValueError, match="not "):
        restored(given, given)
    for text in (
        b"[" * 5000,
        b'[{}, 1, {}, {"jobs": ["<i4", [999999999999999]]}]\n',
        b'[{}, 1, {}, {"jobs": ["<i4", [99999999999999999999]]}]\n',
        b"[[], 0, [], []]\n",
        b"[1, 2, 3, 4]\n",
    ):
        with pytest.raises(ValueError, match="not a difference"):
            restored(zlib.compress(text), given)


def test_a_later_cycle_of_the_same_jobs_takes_a_tenth(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        for number in range(200):
            site.cluster.start(site.cluster.submit()) if number < 50 else site.cluster.submit()
        one = site.cycle()
        for number in range(2, 12):
            site.train(number, {1: 0.1 * number})
        site.cluster.end(7)
        site.cluster.submit()
        two = site.cycle()
    first, second = (parts([r.snapshot, r.forecasts, r.memory], r.snapshot.jobs.keys) for r in (one, two))
    changed = difference(second, first)
    assert same(restored(changed, whole(first)), codec.loads(whole(second)))
    assert len(changed) < len(whole(second)) / 3
