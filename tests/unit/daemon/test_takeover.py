"""Which daemon may act, its lease, and the copies that a takeover starts from."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmplug.cluster.site_client import Controller, parse_controllers
from slurmplug.config.schema import Config
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon import copies, daemon, lease, shared_folder
from slurmplug.daemon.copies import Copies
from slurmplug.daemon.lease import Eligibility, HeartbeatMonitor, Lease, eligibility, may_continue
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.shared_folder import Heartbeat, SharedFolder, read_heartbeat, write_heartbeat
from slurmplug.daemon.standby import Standby
from slurmplug.errors import NotConfirmed, SteppedDown
from slurmplug.ledger import backup
from slurmplug.processes import child
from slurmplug.spool.folder import SpoolFolder
from tests.ledgers import Site, run

PATIENCE = 60.0
BOTH = (Controller("primary", "ctl1", True), Controller("backup", "ctl2", True))
PRIMARY_DOWN = (Controller("primary", "ctl1", False), Controller("backup", "ctl2", True))
NONE = (Controller("primary", "ctl1", False), Controller("backup", "ctl2", False))
OF_PRIMARY = Heartbeat("ctl1", "a1", "7")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy, a process takes a while to begin."""
    monkeypatch.setattr(child, "PAUSE", 0.0)
    for module, name in ((shared_folder, "ANSWER_SECONDS"), (lease, "RELEASE_SECONDS"), (copies, "LAST_SECONDS")):
        monkeypatch.setattr(module, name, 60.0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SharedFolder]:
    with closing(SharedFolder(tmp_path)) as one:
        yield one


def hung(folder: Path) -> None:
    """Who opens the heartbeat waits from now on, as on a file system that hangs."""
    os.mkfifo(folder / "hangs")
    os.replace(folder / "hangs", folder / "acting")


class TestEligibility:
    def test_the_primary_acts_where_nobody_does(self) -> None:
        assert eligibility(0, BOTH, Heartbeat(), 0.0, PATIENCE).eligible

    def test_a_backup_stands_by_while_the_primarys_slurmctld_answers(self) -> None:
        assert eligibility(1, BOTH, Heartbeat(), 1e6, PATIENCE) == Eligibility(False, "slurmctld on ctl1 is in control")

    def test_a_backup_stands_by_while_the_primarys_daemon_is_alive(self) -> None:
        found = eligibility(1, PRIMARY_DOWN, OF_PRIMARY, PATIENCE - 1, PATIENCE)
        assert found == Eligibility(False, "the daemon on ctl1 is alive", "last heartbeat 59 s ago")
        assert found.message == "the daemon on ctl1 is alive (last heartbeat 59 s ago)"

    def test_a_backup_acts_when_both_are_gone(self) -> None:
        assert eligibility(1, PRIMARY_DOWN, OF_PRIMARY, PATIENCE, PATIENCE).eligible

    def test_a_backup_acts_at_once_when_the_primarys_daemon_released_the_lease(self) -> None:
        assert eligibility(1, PRIMARY_DOWN, Heartbeat(), 0.0, PATIENCE).eligible

    def test_the_primary_waits_for_a_backup_that_acts(self) -> None:
        assert not eligibility(0, BOTH, Heartbeat("ctl2", "b1", "3"), 5.0, PATIENCE).eligible

    def test_a_daemon_that_starts_again_need_not_wait_for_itself(self) -> None:
        assert eligibility(0, BOTH, OF_PRIMARY, 0.0, PATIENCE).eligible

    def test_nobody_acts_while_no_slurmctld_answers(self) -> None:
        assert not eligibility(0, NONE, Heartbeat(), 1e6, PATIENCE).eligible
        assert not eligibility(1, NONE, Heartbeat(), 1e6, PATIENCE).eligible

    def test_a_machine_that_is_no_controller_says_so(self) -> None:
        assert (
            eligibility(None, BOTH, Heartbeat(), 1e6, PATIENCE).reason
            == "this host is not in SlurmctldHost: ctl1, ctl2"
        )

    def test_a_host_is_known_by_its_short_name(self) -> None:
        assert lease.controller_index(BOTH, "ctl2.site.example") == 1
        assert lease.controller_index(BOTH, "login") is None

    def test_the_primary_continues_and_a_backup_steps_down_when_the_primary_is_back(self) -> None:
        assert may_continue(0, PRIMARY_DOWN)
        assert may_continue(1, PRIMARY_DOWN)
        assert may_continue(1, NONE)
        assert not may_continue(1, BOTH)

    def test_pings_are_read(self) -> None:
        text = "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UP\n"
        assert parse_controllers(text) == PRIMARY_DOWN

    def test_the_age_of_a_heartbeat_counts_from_when_it_was_first_seen(self) -> None:
        monitor = HeartbeatMonitor(100.0)
        assert monitor.age(OF_PRIMARY, 105.0) == 0.0
        assert monitor.age(OF_PRIMARY, 130.0) == 25.0
        assert monitor.age(Heartbeat("ctl1", "a1", "8"), 140.0) == 0.0


class TestLease:
    def test_it_is_renewed_and_released(self, folder: SharedFolder) -> None:
        held_lease = Lease(folder, 0.3, "ctl1")
        held_lease.acquire()
        first = read_heartbeat(folder.path)
        assert first.host == "ctl1"
        deadline = time.monotonic() + 60
        while read_heartbeat(folder.path) == first and time.monotonic() < deadline:
            time.sleep(0.01)
        assert read_heartbeat(folder.path).number > first.number
        held_lease.confirm()
        held_lease.close()
        assert read_heartbeat(folder.path) == Heartbeat()

    def test_a_daemon_that_lost_the_lease_does_not_take_it_back(self, folder: SharedFolder) -> None:
        first, second = Lease(folder, 0.1, "ctl1"), Lease(folder, 0.1, "ctl2")
        first.acquire()
        second.acquire()
        with pytest.raises(SteppedDown, match="the daemon on ctl2 is active now"):
            first.confirm()
        assert not first.is_held()
        first.close()
        second.confirm()
        assert read_heartbeat(folder.path).host == "ctl2"
        second.close()

    def test_of_two_that_acquire_it_at_once_one_acts(
        self, folder: SharedFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = Lease(folder, 0.1, "ctl1"), Lease(folder, 0.1, "ctl2")
        monkeypatch.setattr(first._closed, "wait", lambda seconds: second.acquire())
        with pytest.raises(SteppedDown):
            first.acquire()
        assert second.is_held()
        second.close()

    def test_nothing_is_confirmed_where_the_folder_fails(self, tmp_path: Path) -> None:
        failed = pytest.raises(NotConfirmed, match="cannot be written: No such file")
        with closing(SharedFolder(tmp_path / "none")) as none, failed:
            Lease(none, 0.1).acquire()
        (tmp_path / "acting").mkdir()
        with pytest.raises(NotConfirmed, match="cannot be read: Is a directory"):
            read_heartbeat(tmp_path)

    def test_where_the_folder_hangs_it_is_not_confirmed_and_renewed_once_it_answers(
        self, folder: SharedFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held_lease = Lease(folder, PATIENCE, "ctl1")
        held_lease._renew()
        held = (folder.path / "acting").read_text()
        hung(folder.path)
        monkeypatch.setattr(shared_folder, "ANSWER_SECONDS", 0.1)
        with pytest.raises(NotConfirmed, match="does not answer"):
            held_lease.confirm()
        monkeypatch.setattr(shared_folder, "ANSWER_SECONDS", 60.0)
        (folder.path / "acting").unlink()
        (folder.path / "acting").write_text(held)
        held_lease.confirm()
        held_lease.close()

    def test_one_that_hangs_while_it_is_renewed_is_closed_without_waiting_for_it(
        self, folder: SharedFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held_lease = Lease(folder, 0.1, "ctl1")
        held_lease.acquire()
        monkeypatch.setattr(shared_folder, "ANSWER_SECONDS", 3_600.0)
        monkeypatch.setattr(lease, "RELEASE_SECONDS", 0.1)
        hung(folder.path)
        held_lease.close()

    def test_a_heartbeat_that_comes_late_is_not_written(self, tmp_path: Path) -> None:
        write_heartbeat(tmp_path, "new", OF_PRIMARY, time.monotonic() + 60)
        with pytest.raises(NotConfirmed, match="could not be written in time"):
            write_heartbeat(tmp_path, "new", Heartbeat("ctl2", "b1", "1"), time.monotonic() - 1)
        assert read_heartbeat(tmp_path) == OF_PRIMARY

    def test_a_file_that_is_no_heartbeat_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "acting").write_bytes(b"\xff" * 1000)
        assert read_heartbeat(tmp_path) == Heartbeat()


class FakeClient:
    def __init__(self, states: tuple[Controller, ...]) -> None:
        self.states = states

    def controllers(self) -> tuple[Controller, ...]:
        return self.states


def standing_by(folder: SharedFolder, host: str, states: tuple[Controller, ...], stop_after: int = 10**6) -> Standby:
    looks = iter(range(10**7))
    config = Config.from_table({"takeover": {"folder": str(folder.path), "patience": 0.2}})
    one = Standby(config, folder, lambda: next(looks) > stop_after, host)
    one._client = FakeClient(states)  # type: ignore[assignment]
    return one


class TestStandby:
    def test_a_backup_acquires_the_lease_when_no_heartbeat_comes(self, folder: SharedFolder) -> None:
        (folder.path / "acting").write_text("ctl1 a1 7\n")
        held_lease = standing_by(folder, "ctl2", PRIMARY_DOWN).wait(ServiceNotifier({}))
        assert held_lease is not None
        assert read_heartbeat(folder.path).host == "ctl2"
        held_lease.close()

    def test_a_backup_waits_as_long_as_it_may_not_act(self, folder: SharedFolder) -> None:
        assert standing_by(folder, "ctl2", BOTH, stop_after=30).wait(ServiceNotifier({})) is None
        assert read_heartbeat(folder.path) == Heartbeat()

    def test_one_that_stops_while_it_acquires_the_lease_releases_it(self, folder: SharedFolder) -> None:
        assert standing_by(folder, "ctl1", BOTH, stop_after=0).wait(ServiceNotifier({})) is None
        assert read_heartbeat(folder.path) == Heartbeat()

    def test_a_backup_that_acts_steps_down_when_the_primary_is_back(self, folder: SharedFolder) -> None:
        one = standing_by(folder, "ctl2", PRIMARY_DOWN)
        assert one.may_continue()
        one._client = FakeClient(BOTH)  # type: ignore[assignment]
        assert not one.may_continue()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "primary").mkdir()
    with Site(tmp_path / "primary") as site:
        for _ in range(3):
            site.cluster.submit()
        site.cycle()
        yield site


def config_of(folder: Path, shared: Path) -> Config:
    for name in ("spool/reports", "spool/requests", "ledger"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    settings = {
        "ledger": {"path": str(folder / "ledger/ledger.db")},
        "spool": {"path": str(folder / "spool")},
        "takeover": {"folder": str(shared), "every": 1000.0},
    }
    return Config.from_table(settings)


def held_lease_in(shared: Path) -> Lease:
    held_lease = Lease(SharedFolder(shared), PATIENCE, "ctl1")
    held_lease._renew()
    return held_lease


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Lease]:
    """The lease of the daemon that acts."""
    (tmp_path / "shared").mkdir()
    held_lease = held_lease_in(tmp_path / "shared")
    yield held_lease
    held_lease.folder.close()


class TestTakingOver:
    def take_over(self, config: Config, held_lease: Lease) -> None:
        made = Copies(config, held_lease)
        made.take_over(SpoolFolder(config.spool.path).call, lambda: True)
        made._worker.close()

    def test_a_backup_goes_on_from_the_primarys_copy(self, site: Site, tmp_path: Path, shared: Lease) -> None:
        backup.publish(site.path, shared.folder.path, lambda: True)
        config = config_of(tmp_path / "backup", shared.folder.path)
        request = config.spool.path / "requests/5.0.stop"
        request.touch()
        self.take_over(config, shared)
        assert backup.last_cycle(config.ledger.path) == backup.last_cycle(site.path)
        assert (shared.folder.path / backup.NEWEST).stat().st_mode & 0o777 == 0o600
        assert not request.exists(), "the copy knows of no such request"

    def test_the_ledger_that_knows_more_stays(self, site: Site, tmp_path: Path, shared: Lease) -> None:
        backup.publish(site.path, shared.folder.path, lambda: True)
        site.cycle()
        before = site.path.stat().st_ino
        ledger = Config().ledger.replaced(path=site.path)
        config = config_of(tmp_path / "primary", shared.folder.path).replaced(ledger=ledger)
        self.take_over(config, shared)
        assert site.path.stat().st_ino == before

    def test_a_copy_that_hangs_is_waited_for_until_the_daemon_is_to_stop(
        self, tmp_path: Path, shared: Lease, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = config_of(tmp_path / "backup", shared.folder.path)
        made, goes_on = Copies(config, shared), iter([True, True, False, False])
        os.kill(made._worker.pid, signal.SIGSTOP)
        made.take_over(SpoolFolder(config.spool.path).call, lambda: next(goes_on))
        monkeypatch.setattr(copies, "LAST_SECONDS", 0.1)
        made.close(lambda: False)

    def test_a_damaged_copy_gives_way_to_the_one_before(self, site: Site, tmp_path: Path) -> None:
        shared = tmp_path
        backup.publish(site.path, shared, lambda: True)
        first = backup.last_cycle(shared / backup.NEWEST)
        site.cycle()
        backup.publish(site.path, shared, lambda: True)
        newest = shared / backup.NEWEST
        newest.write_bytes(newest.read_bytes()[:5000])
        assert backup.newest(shared) == (shared / backup.BEFORE, first)

    def test_nothing_is_published_by_one_that_acts_no_more(self, site: Site, tmp_path: Path) -> None:
        backup.publish(site.path, tmp_path, lambda: False)
        assert backup.newest(tmp_path) is None

    def test_copies_are_made_when_due_and_a_last_one_at_the_end(
        self, site: Site, tmp_path: Path, shared: Lease
    ) -> None:
        config = config_of(tmp_path / "primary", shared.folder.path)
        config = config.replaced(ledger=config.ledger.replaced(path=site.path))
        made = Copies(config, shared)
        made.tick(0.0)
        made.tick(999.0)
        made._take(None, lambda: True)
        first = backup.newest(shared.folder.path)
        assert first is not None
        site.cycle()
        made.close(lambda: True)
        last = backup.newest(shared.folder.path)
        assert last is not None
        assert last[1] > first[1]

    def test_a_last_one_that_takes_too_long_is_left(
        self,
        site: Site,
        tmp_path: Path,
        shared: Lease,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(copies, "LAST_SECONDS", 0.1)
        Copies(config_of(tmp_path / "primary", shared.folder.path), shared).close(lambda: False)
        assert "would take too long" in caplog.text


class TestOperators:
    """pause, resume and reset run on the controller whose daemon acts."""

    @pytest.fixture
    def config(self, site: Site, tmp_path: Path) -> Path:
        path = tmp_path / "slurmplug.toml"
        path.write_text(f'ledger.path = "{site.path}"\ntakeover.folder = "{tmp_path}"\n')
        return path

    @pytest.mark.parametrize("command", ["pause", "resume", "reset"])
    def test_a_command_is_refused_while_another_controllers_daemon_acts(
        self, command: str, config: Path, site: Site, tmp_path: Path
    ) -> None:
        (tmp_path / "acting").write_text("elsewhere a1 7\n")
        result = run(command, "--config", str(config))
        assert result.exit_code != 0
        assert "the daemon on elsewhere is active" in result.output
        assert site.ledger.control("paused") is None

    def test_without_a_ledger_here_nothing_is_given_back_either(self, config: Path, tmp_path: Path) -> None:
        (tmp_path / "acting").write_text("elsewhere a1 7\n")
        config.write_text(f'ledger.path = "{tmp_path}/none.db"\ntakeover.folder = "{tmp_path}"\n')
        assert "the daemon on elsewhere is active" in run("reset", "--config", str(config)).output

    def test_a_command_writes_this_ledger_where_its_own_daemon_acts_or_none_does(
        self, config: Path, site: Site, tmp_path: Path
    ) -> None:
        for heartbeat in (None, "", f"{socket.gethostname()} a1 7\n", "elsewhere a1 7\n"):
            site.ledger.set_control("paused", None)
            if heartbeat is not None:
                (tmp_path / "acting").write_text(heartbeat)
                os.utime(tmp_path / "acting", (0, time.time() - (1_000 if "elsewhere" in heartbeat else 0)))
            assert run("pause", "--config", str(config)).exit_code == 0
            assert site.ledger.control("paused") is not None


class TestStopping:
    """SIGTERM ends it whenever it comes."""

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """The configuration of a daemon that gets the lease once."""
        held_lease = held_lease_in(tmp_path)
        leases = iter([held_lease])
        monkeypatch.setattr(Standby, "wait", lambda _, __: next(leases))
        (tmp_path / "slurmplug.toml").write_text(
            f'policy = "fifo"\nspool.path = "{tmp_path}/none"\nledger.path = "{tmp_path}/ledger.db"\n'
            f'slurm.bin = "{tmp_path}"\ntakeover.folder = "{tmp_path}"\n'
        )
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        yield tmp_path / "slurmplug.toml"
        held_lease.folder.close()
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_while_it_takes_over(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def goes_on(_: Scheduler) -> None:
            raise AssertionError("it began a cycle")

        monkeypatch.setattr(Copies, "take_over", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        monkeypatch.setattr(Scheduler, "run", goes_on)
        daemon.serve(path)

    def test_while_the_shared_folder_hangs(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def hangs(scheduler: Scheduler) -> None:
            hung(path.parent)
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
            scheduler.port.confirm()  # type: ignore[attr-defined]

        monkeypatch.undo()
        monkeypatch.setattr(shared_folder, "ANSWER_SECONDS", 3_600.0)
        monkeypatch.setattr(Standby, "wait", lambda _, __: held_lease_in(path.parent))
        monkeypatch.setattr(Scheduler, "run", hangs)
        daemon.serve(path)

    def test_as_it_gives_way_to_another(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def gives_way(_: Scheduler) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            raise SteppedDown("the daemon on ctl2 is active now")

        monkeypatch.setattr(Scheduler, "run", gives_way)
        daemon.serve(path)
