"""Times as text, in this machine's time zone."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.console.times import LATEST, format_time


@pytest.fixture(scope="module", params=["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone")
@given(st.floats(0.0, 5e9) | st.integers(0, 5_000_000_000))
def test_a_time_is_as_iso_8601_has_it_without_fractions(seconds: float) -> None:
    assert format_time(seconds) == datetime.fromtimestamp(seconds).isoformat(timespec="seconds")


def test_a_time_beyond_the_last_year_is_the_last() -> None:
    assert format_time(1e300) == format_time(LATEST)
