"""Progress is for people who watch: in a terminal, and nowhere else."""

import subprocess
import sys

import pytest

SHOWN = """
import os, pty, subprocess, sys
watched, terminal = pty.openpty()
done = subprocess.run([sys.executable, "-c", sys.argv[1]], stderr=terminal, stdout=subprocess.PIPE)
os.set_blocking(watched, False)
sys.stdout.buffer.write(os.read(watched, 65536) + b"|" + done.stdout)
"""
BAR = "from slurmplug.console import progress\nwith progress.bar('fifo', 'jobs') as say: say and say(3, 9)"
SPINNER = "from slurmplug.console import progress\nwith progress.spinner('bounds'): pass"


@pytest.mark.parametrize(("code", "said"), [(BAR, b"3/9 jobs"), (SPINNER, b"bounds")])
def test_a_terminal_shows_it_and_a_pipe_does_not(code: str, said: bytes) -> None:
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (b"", b"")
    shown = subprocess.run([sys.executable, "-c", SHOWN, code], capture_output=True, check=True).stdout
    on_terminal, _, on_pipe = shown.partition(b"|")
    assert said in on_terminal
    assert on_pipe == b""
