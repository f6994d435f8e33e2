"""`slurmplug top` over a ledger that real cycles filled; programs in place of Slurm's note how they are called."""

import contextlib
import fcntl
import os
import pty
import select
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Static

import slurmplug
from slurmplug.commands import queue_table, top
from slurmplug.commands.screen import app, source
from slurmplug.commands.screen.job_list import JobList
from slurmplug.commands.screen.rows import SORTED_BY
from slurmplug.commands.screen.source import Source
from tests.ledgers import Site, run
from tests.screens import Driven, Scenario, drive

TRAINING = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --max-iterations=90\ntrain\n"
PLAIN = b"#!/bin/sh\ntrain\n"


class Terminal:
    """A site of five jobs, and the screen before it."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.folder, self.site = folder, site
        self.config = folder / "slurmplug.toml"
        self.config.write_text(f'[ledger]\npath = "{site.path}"\n[slurm]\nbin = "{folder}"\n')
        self.output = folder / "first.out"
        self.output.write_text("epoch 1\nepoch 2\n")
        self.program("scancel", f'echo "scancel $*" >>{folder}/calls')
        self.shows(f"   StdErr=/dev/null\n   StdOut={self.output}\n   Power=")

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def shows(self, job: str) -> None:
        """What scontrol prints of every job."""
        (self.folder / "shown").write_text(job)
        self.program(
            "scontrol", f'[ "$1" != show ] || exec cat {self.folder}/shown\necho "scontrol $*" >>{self.folder}/calls'
        )

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def drive(self, scenario: Scenario, size: tuple[int, int] = (80, 24)) -> None:
        drive(Source(self.config, None, unicode=True), scenario, size)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Site(tmp_path) as site:
        cluster = site.cluster
        first = cluster.submit(TRAINING, name="first")
        cluster.submit(TRAINING, name="second", user="bob", uid=1002)
        cluster.submit(PLAIN, name="third", partition="long")
        cluster.submit(PLAIN, name="fourth", user="bob", uid=1002, gpus=4)
        cluster.submit(PLAIN, name="array", array_id=5, elements=3, array_tasks="0-2")
        site.cycle()
        cluster.start(first)
        site.cycle()
        site.train(first, {n: 0.5 + n / 100 for n in range(1, 20)})
        site.cycle()
        yield Terminal(tmp_path, site)


def ids(driven: Driven) -> list[str]:
    """The ids of the jobs on the screen, in order."""
    listed = driven.lines()[1:]
    at = listed[0].index("JOBID")
    rows = listed[1 : 1 + driven.app.screen.query_one(JobList).size.height]
    return [row[at:].split()[0] for row in rows if row.strip()]


def test_it_shows_the_rows_of_queue(terminal: Terminal) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs  4 waiting")
        assert ids(driven) == [row["jobid"] for row in terminal.site.json("queue")["jobs"]]
        heading, *rows = driven.lines()[1:7]
        assert heading.split() == [
            "RANK",
            "JOBID",
            "USER",
            "NAME",
            "ST",
            "GPUS",
            "ITER",
            "VALUE",
            "LEFT",
            "DEADLINE",
            "DOING",
        ]
        assert rows[0].split()[:6] == ["1", "ada", "first", "R", "1", "19/90"]

    terminal.drive(scenario)


def test_a_wider_terminal_shows_more_columns_and_a_narrow_one_what_fits(terminal: Terminal) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        assert "NODELIST(REASON)" not in driven.text()
        await driven.pilot.resize_terminal(200, 30)
        await driven.until("NODELIST(REASON)")
        await driven.pilot.resize_terminal(20, 6)
        await driven.until(lambda: "NODELIST(REASON)" not in driven.text())

    terminal.drive(scenario)


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("user=bob", {"2", "4"}),
        ("USER=Bo", {"2", "4"}),
        ("name=fi", {"1"}),
        ("partition=long", {"3"}),
        ("state=pd", {"2", "3", "4", "5_[0-2]"}),
        ("state=r", {"1"}),
        ("state=runn", {"1"}),
        ("state=pd user=ada", {"3", "5_[0-2]"}),
        ("accuracy", {"1"}),
        ("colour=red", set()),
        ("user=", {"1", "2", "3", "4", "5_[0-2]"}),
    ],
)
def test_a_filter_is_applied_while_it_is_typed(terminal: Terminal, typed: str, left: set[str]) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("slash")
        await driven.type(typed)
        await driven.until(f"{len(left)} of 5 jobs")
        assert set(ids(driven)) == left
        await driven.press("enter")
        assert typed in driven.text()
        await driven.press("escape")
        await driven.until("5 jobs  4 waiting")
        assert typed not in driven.text()

    terminal.drive(scenario)


def test_letters_of_a_filter_are_no_commands(terminal: Terminal) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("slash")
        await driven.type("qhrcs")
        await driven.until("0 of 5 jobs")
        assert driven.app.is_running
        await driven.press("enter", "c", "h", "enter")  # of no job
        assert "0 of 5 jobs" in driven.text()

    terminal.drive(scenario)
    assert terminal.calls() == []


def test_it_is_sorted_by_a_column_and_by_the_same_again_in_reverse(terminal: Terminal) -> None:
    async def choose(driven: Driven, column: str) -> None:
        await driven.press("s")
        await driven.until("the queue's own order")
        await driven.press("home", *["down"] * (1 + list(SORTED_BY).index(column)), "enter")

    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        own = ids(driven)
        await choose(driven, "NAME")
        await driven.until("by NAME ")
        assert ids(driven) == ["5_[0-2]", "1", "4", "2", "3"]
        await choose(driven, "NAME")
        await driven.until("by NAME, reversed")
        assert ids(driven) == ["3", "2", "4", "1", "5_[0-2]"]
        await choose(driven, "ITERATION")
        await driven.until("by ITERATION ")
        assert ids(driven)[0] == "1"
        await driven.press("s", "home", "enter")
        await driven.until(lambda: " by " not in driven.lines()[0])
        assert ids(driven) == own
        await driven.press("s", "escape")
        assert ids(driven) == own

    terminal.drive(scenario)


def test_every_sort_key_is_a_column_of_the_table() -> None:
    assert SORTED_BY.keys() <= {column.shown.name for column in queue_table.COLUMNS}


def test_the_selected_job_stays_selected_as_the_queue_changes(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "QUEUE_SECONDS", 0.1)

    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("home", *["down"] * ids(driven).index("4"))
        listed = driven.app.screen.query_one(JobList)
        assert listed.selected == "4"
        terminal.site.cluster.end(1)
        terminal.site.cycle()
        await driven.until("4 jobs")
        assert listed.selected == "4"
        assert listed.cursor == ids(driven).index("4")
        await driven.press("pagedown")
        assert listed.selected == ids(driven)[-1]
        await driven.press("pageup")
        assert listed.selected == ids(driven)[0]
        await driven.press("end", "up")
        assert listed.selected == ids(driven)[-2]

    terminal.drive(scenario)


def test_a_view_that_was_scrolled_away_from_the_selected_job_stays(terminal: Terminal) -> None:
    for number in range(60):
        terminal.site.cluster.submit(PLAIN, name=f"more-{number}")
    terminal.site.cycle()

    async def scenario(driven: Driven) -> None:
        await driven.until("65 jobs")
        listed = driven.app.screen.query_one(JobList)

        def scrolled() -> bool:  # a refresh may come first
            listed.scroll_to(y=30, animate=False)
            return listed.scroll_offset.y == 30

        await driven.until(scrolled)
        begun = len(reads)
        await driven.until(lambda: len(reads) >= begun + 2)
        assert listed.scroll_offset.y == 30
        assert listed.cursor == 0
        await driven.press("down")
        await driven.until(lambda: listed.scroll_offset.y <= 1)

    reads: list[float] = []
    read = Source.queue

    def noted(asked: Source) -> source.Queue:
        reads.append(time.time())
        return read(asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "QUEUE_SECONDS", 0.1)
        patch.setattr(Source, "queue", noted)
        terminal.drive(scenario)


def test_a_click_selects_a_job(terminal: Terminal) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.pilot.click(JobList, offset=(3, 2))
        assert driven.app.screen.query_one(JobList).cursor == 2
        await driven.pilot.click(JobList, offset=(3, 9))  # below the last one
        assert driven.app.screen.query_one(JobList).cursor == 2

    terminal.drive(scenario)


def test_a_jobs_story_has_what_why_says_its_curve_and_its_output(terminal: Terminal) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("home", "enter")
        await driven.until("Iteration 19 of 90: accuracy 0.69.")
        await driven.until("epoch 2")
        said = terminal.site.ask("why", "1").splitlines()
        shown = driven.app.screen.query_one("#story", Static)
        story = str(shown.render())
        for line in said:
            assert line in story
        plot = story[story.index("Job 1: accuracy") :].splitlines()
        assert any(0x2800 < ord(letter) < 0x2900 for letter in "".join(plot))
        await driven.press("escape")
        await driven.until("5 jobs")

    terminal.drive(scenario, (100, 60))


def test_a_story_can_be_read_on_80_columns_and_24_lines(terminal: Terminal) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("home", "enter")
        await driven.until("Requested:")
        assert all(len(line) <= 80 for line in driven.lines())
        shown = driven.app.screen.query_one("#story", Static)
        plot = str(shown.render()).partition("Job 1: accuracy")[2].partition("iteration")[0].splitlines()
        assert plot
        assert max(map(len, plot)) <= shown.size.width  # that no line of it is wrapped
        assert "epoch 2" not in driven.text()
        await driven.press("end")
        await driven.until("epoch 2")

    terminal.drive(scenario)


def test_a_story_goes_on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STORY_SECONDS", 0.1)

    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("home", "enter")
        await driven.until("epoch 2")
        terminal.output.write_text("epoch 3\n")
        await driven.until("epoch 3")
        terminal.output.unlink()
        await driven.until("cannot be read: No such file or directory")
        terminal.shows(f"   StdOut={terminal.folder}/%x.out")
        terminal.program("squeue", f'echo "{terminal.folder}/expanded.out   "; [ "$1" = --expand-patterns ]')
        await driven.until("expanded.out cannot be read: No such file or directory")
        terminal.shows("   StdOut=")
        await driven.until("Slurm names no output file of this job")
        terminal.program("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
        await driven.until("Invalid job id specified")
        assert "Requested:" in driven.text()

    terminal.drive(scenario, (80, 60))


@pytest.mark.parametrize(
    ("key", "call"), [("h", "scontrol hold {}"), ("r", "scontrol release {}"), ("c", "scancel {}")]
)
@pytest.mark.parametrize("job", ["2", "5_[0-2]"])
def test_a_job_is_changed_by_slurms_own_programs_once_that_is_confirmed(
    terminal: Terminal, key: str, call: str, job: str
) -> None:
    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("home", *["down"] * ids(driven).index(job))
        for no in ("n", "escape"):
            await driven.press(key)
            await driven.until(f"job {job} (")
            await driven.press(no)
        assert terminal.calls() == []
        await driven.press(key)
        await driven.until("y: yes")
        await driven.press("y")
        await driven.until(": done")
        await driven.press("enter", key)
        await driven.until("y: yes")
        await driven.press("y")
        await driven.until(lambda: len(terminal.calls()) == 2)

    terminal.drive(scenario)
    assert terminal.calls() == [call.format(job)] * 2


def test_what_slurm_refuses_is_shown_as_it_says_it(terminal: Terminal) -> None:
    terminal.program("scancel", "printf 'scancel: error: Access/permission denied\\033[2J [b]\\n' >&2; exit 1")
    terminal.program("scontrol", "exit 3")

    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("c", "y")
        await driven.until("scancel: error: Access/permission denied\\x1b[2J [b]")
        await driven.press("enter", "h", "y")
        await driven.until("scontrol exits 3")
        await driven.press("escape")
        terminal.folder.joinpath("scontrol").unlink()
        await driven.press("r", "y")
        await driven.until("scontrol cannot be run: No such file or directory; set slurm.bin")

    terminal.drive(scenario, (100, 30))


def test_elements_of_which_slurmplug_does_not_know_the_numbers_are_not_changed(terminal: Terminal) -> None:
    terminal.site.cluster.submit(PLAIN, name="wide", array_id=6, elements=9000)
    terminal.site.cycle()

    async def scenario(driven: Driven) -> None:
        await driven.until("6 jobs")
        await driven.press("home", *["down"] * ids(driven).index("6_[x9000]"), "c", "y")
        await driven.until("'6_[x9000]' does not name the jobs one by one")

    terminal.drive(scenario)
    assert terminal.calls() == []


HOSTILE = "\x1b]0;owned\x07[red]x[/red][@click=app.quit]y[/] \u202egnp"


def test_nothing_of_a_jobs_name_or_output_is_obeyed(terminal: Terminal) -> None:
    terminal.site.cluster.submit(
        b"#!/bin/sh\n#PLUG --urgency=\x1b[31mhot[/b]\ntrain\n", name=HOSTILE, comment=HOSTILE, partition="[b]\x9b2J"
    )
    terminal.site.cycle()
    terminal.output.write_bytes(
        b"[bold]plain[/bold] \x1b[2J\x9b\xff\x00\x0e[@click=app.quit]go[/]\n" + b"\xe2\x80\xae" * 9
    )
    shown = "\\x1b]0;owned\\x07[red]x[/red][@click=app.quit]y[/] \\u202egnp"

    async def scenario(driven: Driven) -> None:
        await driven.until("6 jobs")
        assert "\\x1b]0;owned\\x07[re+" in driven.text()
        assert "[b]\\x9b2J" in driven.text()
        await driven.press("slash")
        await driven.type("owned")
        await driven.until("1 of 6 jobs")
        await driven.press("enter", "c")
        await driven.until("y: yes")
        assert shown in driven.text()
        await driven.press("n", "enter")
        await driven.until("[bold]plain[/bold] \\x1b[2J\\x9b\\xff\\x00\\x0e[@click=app.quit]go[/]")
        await driven.until("--urgency=\\x1b[31mhot[/b]")
        assert "\\u202e" * 9 in driven.text()
        assert shown in driven.text()
        assert driven.app.is_running

    terminal.drive(scenario, (250, 60))


def test_it_goes_on_while_the_ledger_is_gone_and_says_so(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "QUEUE_SECONDS", 0.1)
    away = terminal.folder / "away.db"

    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.until("The daemon is not alive (slurmplug status); this is as of 20")
        terminal.site.path.rename(away)
        await driven.until("cannot be opened: No such file or directory")
        assert "5 jobs" in driven.text()
        await driven.press("s", "home", "down", "down", "enter")
        await driven.until("by JOBID")
        assert ids(driven)[0] == "1"
        away.rename(terminal.site.path)
        await driven.until("The daemon is not alive (slurmplug status); this is as of 20")

    terminal.drive(scenario)


def test_an_endpoint_that_does_not_listen_is_named(terminal: Terminal) -> None:
    terminal.program("munge", "cat >/dev/null; echo MUNGE:AAAAAAAAAAAAAAAAAAAA:")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def scenario(driven: Driven) -> None:
        await driven.until(f"the daemon does not answer at http://127.0.0.1:{port}: Connection refused")
        await driven.press("enter", "c", "down")  # of no job

    terminal.config.write_text(f'[ledger]\npath = "/not/here.db"\n[endpoint]\nurl = "http://127.0.0.1:{port}"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{terminal.folder}:/usr/bin:/bin")
        terminal.drive(scenario)


def test_keys_are_answered_and_it_quits_at_once_while_no_answer_comes(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "QUEUE_SECONDS", 0.1)
    terminal.program("munge", "cat >/dev/null; echo MUNGE:AAAAAAAAAAAAAAAAAAAA:")
    monkeypatch.setenv("PATH", f"{terminal.folder}:/usr/bin:/bin")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        terminal.config.write_text(f'[ledger]\npath = "/not/here.db"\n[endpoint]\nurl = "{url}"\n')

        async def scenario(driven: Driven) -> None:
            await driven.until("No answer yet to what was asked at ")
            await driven.press("question_mark")
            await driven.until("select a job")
            await driven.press("escape", "q")
            await driven.until(lambda: not driven.app.is_running)
            silent.close()

        terminal.drive(scenario)


def test_slurms_programs_do_not_start_while_root_has_the_rights_of_the_ledgers_owner(terminal: Terminal) -> None:
    terminal.program("scancel", f"id -u >>{terminal.folder}/calls")
    opening, opened = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def as_owner(*_: object) -> Iterator[None]:
        os.seteuid(65534)
        opening.set()
        opened.wait(60)
        os.seteuid(0)
        yield

    asked = Source(terminal.config, None, unicode=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "open_reports", as_owner)
        reader = threading.Thread(target=lambda: contextlib.ExitStack().enter_context(asked._reports()))
        reader.start()
        assert opening.wait(60)
        changer = threading.Thread(target=asked.change, args=("cancel", "2"))
        changer.start()
        changer.join(0.5)
        opened.set()
        reader.join(60)
        changer.join(60)
    assert terminal.calls() == ["0"]


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_quits_from_the_queue_and_from_a_story(terminal: Terminal, key: str) -> None:
    async def from_queue(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press(key)
        await driven.until(lambda: not driven.app.is_running)

    async def from_story(driven: Driven) -> None:
        await driven.until("5 jobs")
        await driven.press("enter")
        await driven.until("Requested:")
        await driven.press(key)
        await driven.until(lambda: not driven.app.is_running)

    terminal.drive(from_queue)
    terminal.drive(from_story)


def test_without_colours_the_selected_job_is_told_by_reverse_video(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(driven: Driven) -> None:
        await driven.until("5 jobs")
        assert driven.app.no_color
        listed = driven.app.screen.query_one(JobList)
        reverse = [any(part.style and part.style.reverse for part in listed.render_line(y)) for y in range(5)]
        assert reverse == [True, False, False, False, False]

    terminal.drive(scenario)


@pytest.mark.parametrize("term", ["xterm-256color", "linux", "vt100"])
def test_on_a_terminal_it_draws_and_quits_and_sends_nothing_of_a_jobs_name(terminal: Terminal, term: str) -> None:
    terminal.site.cluster.submit(PLAIN, name=HOSTILE)
    terminal.site.cycle()
    pid, end = pty.fork()
    if not pid:
        environment = {"PATH": os.environ["PATH"], "TERM": term, "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
        words = [sys.executable, "-c", "from slurmplug.commands import main; main()", "top"]
        os.execve(
            sys.executable,
            [*words, "--config", str(terminal.config)],
            {**environment, "PYTHONPATH": str(Path(slurmplug.__file__).parents[1])},
        )
    sent, limit = b"", time.monotonic() + 60
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        while b"6 jobs" not in sent and time.monotonic() < limit:
            if select.select([end], [], [], 1)[0]:
                sent += os.read(end, 65_536)
        assert b"6 jobs" in sent, sent
        os.write(end, b"q")
        with contextlib.suppress(OSError):  # as the terminal is closed
            while part := os.read(end, 65_536):
                sent += part
    finally:
        os.close(end)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, sent
    assert b"\\x1b]0" in sent
    assert b"\x1b]0;owned" not in sent
    assert b"\x1b[31m" not in sent


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "find_spec", lambda _: None)
    result = run("top", "--ledger", "/not/here.db")
    assert result.exit_code == 1
    assert "Error: slurmplug top needs Textual: pip install 'slurmplug[top]'" in result.output


def test_without_a_terminal_it_names_the_commands_that_need_none() -> None:
    result = run("top", "--ledger", "/not/here.db")
    assert result.exit_code == 1
    assert "Error: slurmplug top needs a terminal: slurmplug queue prints the same" in result.output
