"""`slurmplug set` on the controller, and where nothing can be changed."""

import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.directives.grammar import TABLE
from tests.ledgers import Site, run

PENDING = b"#!/bin/sh\n#PLUG --urgency=3\ntrain\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        site.cluster.submit(PENDING)
        site.cycle()
        yield site


def test_who_may_write_the_ledger_changes_directives_without_an_endpoint(site: Site) -> None:
    assert site.ask("set", "1", "--urgency=8", "--deadline=2h").startswith("job 1: --deadline=2")
    site.cycle()
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert f"by {me}: --deadline=" in site.ask("why", "1")
    assert "--urgency=8 (3 before)" in site.ask("why", "1")


def test_a_mistake_changes_nothing_and_says_what_is_right(site: Site) -> None:
    output = site.ask("set", "1", "--urgency=8", "--stop=taget", code=1)
    assert "Error: --stop=taget: expected iterations, " in output
    assert "did you mean --stop=target?" in output
    assert site.ledger.query("SELECT * FROM directive_changes") == []
    assert "Error: Bad job specified: 'x'" in site.ask("set", "x", "--urgency=8", code=1)
    assert "No such option '--urgencey'. Did you mean" in site.ask("set", "1", "--urgencey=8", code=2)


def test_without_an_endpoint_a_user_learns_who_can_change_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[ledger]\npath = "{tmp_path}/ledger.db"\n')
    reads = os.access
    monkeypatch.setattr(
        os, "access", lambda path, *how, **given: Path(path).name != "ledger.db" and reads(path, *how, **given)
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    result = run("set", "--config", str(config), "1", "--urgency=8")
    assert result.exit_code == 1
    assert "Error: directives change through the daemon's endpoint, and endpoint.url is not set" in result.output
    assert "ask an operator" in result.output


def test_root_without_a_ledger_learns_that_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[ledger]\npath = "{tmp_path}/ledger.db"\n')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = run("set", "--config", str(config), "1", "--urgency=8")
    assert result.exit_code == 1
    assert "has the daemon run?" in result.output


def test_its_help_lists_the_directives_that_can_change_and_refuses_the_others_with_the_reason(site: Site) -> None:
    shown = run("set", "--help").output
    listed = set(re.findall(r"^  --([a-z-]+) VALUE", shown, re.MULTILINE))
    assert listed == {row.name for row in TABLE if not row.fixed}
    for row in TABLE:
        if row.fixed:
            assert f"cannot change after the submission: {row.fixed}" in site.ask(
                "set", "1", f"--{row.name}={row.example}", code=1
            )
