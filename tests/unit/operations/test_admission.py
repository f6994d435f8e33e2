"""Who waits to be admitted is held, let go as the policy decides, and never where its user holds it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmplug.spool.requests import write_waiting
from tests.fake_cluster import Crash
from tests.moving import ADMITTED, MakeSite, MovingSite

RELEASE = Path(__file__).parents[3] / "site_config" / "slurmplug-release"
HELD = {"priority": 0.0, "reason": "JobHeldUser"}


@pytest.fixture
def site(make_site: MakeSite) -> MovingSite:
    """Job 1 was held by the submit plugin."""
    one = make_site()
    one.cluster.submit(ADMITTED, **HELD)
    return one


def reason(site: MovingSite) -> str:
    return str(site.cluster.jobs[1]["reason"])


def test_its_hold_becomes_an_operators_within_a_cycle(site: MovingSite) -> None:
    site.cycle()
    assert reason(site) == "JobHeldAdmin"
    site.cycle()
    assert site.result() == "done"
    site.cycle()
    assert site.cluster.verbs() == ["hold"]
    assert site.scheduler.intake.waiting == {1}  # type: ignore[attr-defined]


def test_it_is_let_go_with_the_gpus_and_at_the_time_of_its_first_slot(site: MovingSite) -> None:
    site.cycle()
    site.cycle()
    begin = site.cluster.time + 500.0
    site.cycle(kind="release", gpus=2, begin=begin)
    site.cycle()
    assert (site.cluster.jobs[1]["gpus"], site.cluster.jobs[1]["eligible"]) == (2, int(begin))
    assert reason(site) == "Priority"
    site.cycle()
    assert site.result() == "done"
    assert site.scheduler.intake.waiting == set()  # type: ignore[attr-defined]


def test_it_is_not_let_go_with_gpus_that_it_did_not_ask_for(site: MovingSite) -> None:
    for gpus in (-2, 0, 9):
        site.cycle(kind="release", gpus=gpus)
        site.cycle(kind="release", gpus=gpus)
        assert reason(site) == "JobHeldAdmin"
    assert site.cluster.verbs() == ["hold"]
    assert "range" in site.vetoes()


def test_it_is_let_go_from_an_operators_hold_and_in_the_cycle_that_sees_it(site: MovingSite) -> None:
    for gpus in (2, 2):
        site.cycle(kind="release", gpus=gpus)
    assert site.cluster.verbs()[:2] == ["hold", "update"]
    site.cycle()
    assert site.cluster.verbs()[-1] == "release"


def test_a_release_that_was_never_said_leaves_nobody_held_as_if_by_its_user(site: MovingSite) -> None:
    site.cluster.crash_after = 0
    with pytest.raises(Crash):
        site.cycle(kind="release")
    site.cluster.crash_after = None
    site.restart()
    for _ in range(4):
        site.cycle(kind="release")
    assert reason(site) == "Priority"


def test_a_rejected_one_stays_held_and_is_offered_again(site: MovingSite) -> None:
    for _ in range(3):
        site.cycle(kind="hold")
    assert reason(site) == "JobHeldAdmin"
    assert site.cluster.verbs() == ["hold"]
    record = site.cycle(kind="release")
    assert record.snapshot.jobs.awaits.tolist() == [True]
    assert reason(site) == "Priority"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_user_who_holds_an_admitted_job_keeps_it_held(site: MovingSite, restarts: bool) -> None:
    site.cycle()
    site.cycle()
    site.cycle(kind="release")
    site.cycle()
    site.cluster.jobs[1] |= HELD | {"eligible": float("nan")}  # Slurm takes the eligible time back
    if restarts:
        site.restart()
    site.policy.wanted = {1: {"kind": "release"}}
    for _ in range(3):
        site.cycle()
    assert reason(site) == "JobHeldUser"
    assert site.vetoes() == ["held"]


def test_a_user_who_holds_it_while_its_release_is_not_answered_keeps_it_held(site: MovingSite) -> None:
    site.cycle()
    site.cycle()
    site.cluster.lose = True
    site.cycle(kind="release")
    site.cluster.lose = False
    site.cluster.jobs[1] |= HELD
    for _ in range(3):
        site.cycle()
    assert reason(site) == "JobHeldUser"
    assert site.result() == "done, and it is held by its user or an operator"


def test_who_was_let_go_while_the_daemon_was_dead_and_is_held_by_its_user_is_not_waiting(site: MovingSite) -> None:
    site.cycle()
    site.cycle()
    site.cluster.jobs[1] |= HELD  # the timer let it go, and then its user held it
    site.restart()
    site.policy.wanted = {1: {"kind": "release"}}
    site.cycle()
    site.cycle()
    assert reason(site) == "JobHeldUser"


def test_a_user_who_holds_a_job_that_was_not_held_at_first_keeps_it_held(make_site: MakeSite) -> None:
    site = make_site()
    site.cluster.submit(ADMITTED)
    site.cycle()
    site.cluster.jobs[1] |= HELD
    site.cycle(kind="release")
    site.cycle()
    assert (reason(site), site.cluster.verbs()) == ("JobHeldUser", [])


def test_a_hold_without_a_utility_is_its_users(make_site: MakeSite) -> None:
    site = make_site()
    site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=5\ntrain\n", **HELD)
    site.cycle(kind="release")
    assert (reason(site), site.cluster.verbs(), site.vetoes()) == ("JobHeldUser", [], ["held"])


def test_where_the_site_does_not_admit_nothing_is_held_or_let_go(make_site: MakeSite) -> None:
    site = make_site(mode={"admit": "observe"})
    site.cluster.submit(ADMITTED, **HELD)
    site.cycle(kind="release")
    site.cycle(kind="hold")
    assert (reason(site), site.cluster.verbs()) == ("JobHeldUser", [])


def test_a_refused_release_leaves_it_waiting_for_admission(site: MovingSite) -> None:
    site.cycle()
    site.cycle()
    site.cluster.refuse = frozenset({"release"})
    site.cycle(kind="release")
    for _ in range(4):
        site.cycle()
    assert site.result() == "gave up: Slurm refused"
    site.cluster.refuse = frozenset()
    site.cycle(kind="release")
    site.cycle()
    assert reason(site) == "Priority"


@pytest.mark.parametrize("crash_after", [0, 1])
def test_a_daemon_that_dies_while_it_lets_go_does_it_once(site: MovingSite, crash_after: int) -> None:
    site.cycle()
    site.cycle()
    site.cluster.crash_after = crash_after
    try:
        site.cycle(kind="release")
    except Crash:
        site.restart()
    site.cluster.crash_after = None
    site.policy.wanted = {}
    for _ in range(3):
        site.cycle()
    assert reason(site) == "Priority"
    assert site.cluster.verbs().count("release") == 1
    assert site.result() == "done"


class TestTheTimer:
    """`slurmplug-release`, with clients that answer from a file."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Callable[[int], list[str]]:
        for name, text in {
            "squeue": 'for arg; do case $arg in --jobs=*) cat "$DIR/reason.${arg#--jobs=}";; esac; done',
            "scontrol": 'echo "$@" >>"$DIR/said"',
        }.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

        def run(seconds: int) -> list[str]:
            env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DIR": str(tmp_path), "SLURMPLUG_SPOOL": str(tmp_path)}
            subprocess.run([RELEASE, str(seconds)], env=env, check=True, capture_output=True)
            said = tmp_path / "said"
            return said.read_text().splitlines() if said.exists() else []

        return run

    def test_it_lets_nobody_go_while_the_daemon_lives(self, run: Callable[[int], list[str]], tmp_path: Path) -> None:
        write_waiting(tmp_path, {7})
        (tmp_path / "reason.7").write_text("JobHeldAdmin\n")
        assert run(3_600) == []

    def test_it_lets_go_who_waits_and_not_whom_its_user_holds(
        self, run: Callable[[int], list[str]], tmp_path: Path
    ) -> None:
        write_waiting(tmp_path, {7, 8, 9})
        (tmp_path / "reason.7").write_text("JobHeldAdmin\n")
        (tmp_path / "reason.8").write_text("JobHeldUser\n")
        assert run(0) == ["release 7"]

    def test_who_was_let_go_and_is_held_again_is_left_to_whom_holds_it(
        self, run: Callable[[int], list[str]], tmp_path: Path
    ) -> None:
        write_waiting(tmp_path, {7})
        (tmp_path / "reason.7").write_text("JobHeldAdmin\n")
        assert run(0) == ["release 7"]
        assert run(0) == ["release 7"]

    @pytest.mark.parametrize("fails", ["squeue", "scontrol"])
    def test_while_slurm_does_not_answer_nobody_counts_as_let_go(
        self, run: Callable[[int], list[str]], fails: str, tmp_path: Path
    ) -> None:
        write_waiting(tmp_path, {7})
        (tmp_path / "reason.7").write_text("JobHeldAdmin\n")
        client = (tmp_path / fails).read_text()
        (tmp_path / fails).write_text("#!/bin/sh\nexit 1\n")
        assert run(0) == []
        (tmp_path / fails).write_text(client)
        assert run(0) == ["release 7"]

    def test_without_a_list_there_is_nothing_to_do(self, run: Callable[[int], list[str]]) -> None:
        assert run(0) == []
