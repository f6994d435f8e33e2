"""The end of output files of every kind."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmplug.commands.screen.output_file import BYTES, LINES, end_of

NOBODY = 65534


def answered(path: Path) -> list[str]:
    """`end_of`, which may not wait."""
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(end_of(str(path))), daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it waits"
    return found[0]


def test_a_short_file_is_shown_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("one\ntwo\n\nthree")
    assert answered(path) == [f"{path}: 14 bytes", "one", "two", "", "three"]
    path.write_text("")
    assert answered(path) == [f"{path}: 0 bytes", ""]


def test_of_a_long_file_the_last_lines_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("".join(f"line {n}\n" for n in range(100_000)))
    first, *lines = answered(path)
    assert first == f"{path}: {path.stat().st_size:,} bytes, its end"
    assert lines == [f"line {n}" for n in range(100_000 - LINES, 100_000)]


def test_a_terabyte_without_a_line_break_costs_no_more(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    first, line = answered(path)
    assert first == f"{path}: {(1 << 40) + 3:,} bytes, its end"
    assert len(line) == BYTES
    assert line.endswith("\0end")


def test_the_first_line_is_left_out_where_its_beginning_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("x" * BYTES + "\nlast\n")
    assert answered(path)[1:] == ["last"]


def test_bytes_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"\xff\xfe\xc3(\nna\xc3\xafve\n")
    assert answered(path)[1:] == ["\\xff\\xfe\\xc3(", "naïve"]


def test_a_progress_bar_is_shown_as_a_terminal_would_leave_it(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b" 1%\r 50%\r 99%\r\ndos\r\na\tb\n")
    assert answered(path)[1:] == [" 99%", "dos", "a       b"]


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize("make", [os.mkfifo, link_to("/dev/tty"), link_to("/dev/zero"), Path.mkdir])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "out"
    make(path)
    assert answered(path) == [str(path), "is not a regular file, so it is not opened"]


def test_a_link_is_followed_with_the_rights_of_who_asks(tmp_path: Path) -> None:
    for each in (tmp_path, *list(tmp_path.parents)[:-2]):
        each.chmod(0o755)
    target, path = tmp_path / "target", tmp_path / "out"
    target.write_text("secret\n")
    target.chmod(0o600)
    path.symlink_to(target)
    assert answered(path)[1:] == ["secret"]
    os.seteuid(NOBODY)
    try:
        assert end_of(str(path)) == [str(path), "cannot be read: Permission denied"]
    finally:
        os.seteuid(os.getuid())


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert answered(path) == [str(path), "cannot be read: No such file or directory"]
    path.symlink_to(path)
    assert answered(path) == [str(path), "cannot be read: Too many levels of symbolic links"]
