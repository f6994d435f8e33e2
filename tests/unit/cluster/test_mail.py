"""Mail by slurm.conf's MailProg: what the program gets, for whom it is not started, and how it fails."""

from pathlib import Path

import pytest

from slurmplug.cluster.mail import Mailer, MailFailed, MailNotKnown

PROGRAM = """#!/bin/sh
for each; do printf '[%s]' "$each"; done > {out}
cat >> {out}
"""


def program(folder: Path, text: str) -> str:
    path = folder / "mail"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def mailer(folder: Path, text: str, timeout: float = 20.0, **conf: str) -> Mailer:
    return Mailer({"MailProg": program(folder, text), "MailDomain": "(null)", **conf}, timeout)


@pytest.mark.parametrize(("domain", "address"), [("(null)", "ada"), ("", "ada"), ("example.org", "ada@example.org")])
def test_the_program_gets_what_slurm_gives_it(domain: str, address: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mailer(tmp_path, PROGRAM.format(out=out), MailDomain=domain).send("ada", "two words; $(id)", "a text\n")
    assert out.read_text() == f"[-s][two words; $(id)][{address}]a text\n"


@pytest.mark.parametrize("user", ["-oQueueDirectory=/tmp", "", "a b", "ada\n", "|cat", "/etc/passwd", "x" * 200])
def test_a_name_that_could_be_something_else_is_no_address(user: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(MailFailed, match="is not a user name"):
        mailer(tmp_path, PROGRAM.format(out=out)).send(user, "subject", "text")
    assert not out.exists()


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(MailFailed, match="exits 3: no queue") as failed:
        mailer(tmp_path, "#!/bin/sh\necho no queue >&2\nexit 3\n").send("ada", "subject", "text")
    assert not isinstance(failed.value, MailNotKnown)


def test_of_a_program_that_was_ended_it_is_not_known_whether_it_sent_the_mail(tmp_path: Path) -> None:
    with pytest.raises(MailNotKnown, match="was ended by signal 9"):
        mailer(tmp_path, "#!/bin/sh\nkill -9 $$\n").send("ada", "subject", "text")


def test_a_program_that_reads_nothing_and_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(MailNotKnown, match=r"did not end within 0\.2 s"):
        mailer(tmp_path, "#!/bin/sh\nexec sleep 60\n", timeout=0.2).send("ada", "subject", "text" * 100_000)


@pytest.mark.parametrize("name", ["", "(null)", "mail"])
def test_a_site_without_a_program(name: str) -> None:
    with pytest.raises(MailFailed, match="has no MailProg"):
        Mailer({"MailProg": name}, 1.0).send("ada", "subject", "text")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MailFailed, match="none is not there, or not executable"):
        Mailer({"MailProg": str(tmp_path / "none")}, 1.0).send("ada", "subject", "text")
