"""A turn for each user, paid by who asks."""

import threading

import pytest

from slurmplug.endpoint.fair_queue import HALF_LIFE, LITTLE, SHARE, FairQueue

ADA, BOB, EVE = 1001, 1002, 1003


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Asking:
    """Users who wait for a turn in threads, and what they got in which order."""

    def __init__(self, queue: FairQueue[str]) -> None:
        self.queue = queue
        self.served: list[tuple[int, str]] = []
        self.threads: list[threading.Thread] = []

    def ask(self, uid: int) -> None:
        before = len(self.queue._waiting)
        self.threads.append(threading.Thread(target=self._take, args=(uid,), daemon=True))
        self.threads[-1].start()
        while len(self.queue._waiting) <= before:
            pass

    def _take(self, uid: int) -> None:
        with self.queue.turn(uid, 60.0) as lane:
            self.served.append((uid, lane))

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_of_those_who_wait_the_user_who_used_the_least_goes_first(clock: Clock) -> None:
    asking = Asking(queue := FairQueue(["only"], clock))
    queue.charge(EVE, 0.9)
    queue.charge(BOB, 0.5)
    with queue.turn(ADA, 1.0):
        for uid in (EVE, EVE, BOB, ADA):
            asking.ask(uid)
    asking.join()
    assert asking.served == [(uid, "only") for uid in (ADA, BOB, EVE, EVE)]


def test_a_user_has_one_turn_at_a_time_whatever_is_free() -> None:
    queue = FairQueue(["first", "second"])
    with queue.turn(EVE, 1.0):
        with pytest.raises(TimeoutError), queue.turn(EVE, 0.0):
            pass
        with queue.turn(ADA, 0.0) as lane:
            assert lane == "second"
    with queue.turn(EVE, 0.0) as lane:
        assert lane == "first"


def test_the_first_lane_is_kept_for_those_who_used_little(clock: Clock) -> None:
    queue = FairQueue(["first", "second"], clock)
    queue.charge(EVE, LITTLE * 1.5)
    with queue.turn(EVE, 0.0) as lane, queue.turn(ADA, 0.0) as hers:
        assert (lane, hers) == ("second", "first")
    with queue.turn(BOB, 0.0) as other, queue.turn(ADA, 0.0), pytest.raises(TimeoutError), queue.turn(EVE, 0.0):
        assert other == "first"
    clock.now += HALF_LIFE
    with queue.turn(EVE, 0.0) as lane:
        assert lane == "first"


def test_the_first_lane_is_also_for_who_used_far_less_than_another_who_asks(clock: Clock) -> None:
    queue = FairQueue(["first", "second"], clock)
    queue.charge(ADA, LITTLE * 2)
    queue.charge(EVE, LITTLE * 2 / SHARE)
    with queue.turn(EVE, 0.0), queue.turn(ADA, 0.0) as lane:
        assert lane == "first"
    queue.charge(ADA, LITTLE)
    with queue.turn(EVE, 0.0), pytest.raises(TimeoutError), queue.turn(ADA, 0.0):
        pass
