"""Directives as the ledger keeps them come back equal, also those of other releases."""

import json
from dataclasses import asdict

import pytest
from pydantic import TypeAdapter

from slurmplug.directives.parser import Directives, parse
from slurmplug.ledger.stored_directives import directives_from

SCRIPTS = (
    "",
    "--target=accuracy>=0.9 --require-target=yes --stop=target --allow-downgrade=optstop --max-iterations=100",
    "--stop=optstop:val_loss --deadline=3h --trials=all --params=1.5e9 --manage=off --role=worker",
    "--gpus=1..4 --checkpoint=USR1:steps --urgency=8 --type=bert --ml-job=search --notify=on",
    "--checkpoint=file@60 --params=2B,classes:10,kernel:rbf --utility=50,0.5,12",
    "--taget=accuracy>=0.9 --gpus=x\n# PLUG --stop=target",
)


@pytest.mark.parametrize("written", SCRIPTS)
def test_they_come_back_equal(written: str) -> None:
    given = parse(f"#!/bin/sh\n#PLUG {written}\ntrain\n", submitted=1e9)
    stored = json.dumps(asdict(given))
    assert directives_from(stored) == given == TypeAdapter(Directives).validate_json(stored)


def test_the_scripts_have_every_directive() -> None:
    parsed = [parse(f"#!/bin/sh\n#PLUG {written}\ntrain\n", submitted=1e9) for written in SCRIPTS]
    assert all(any(getattr(each, name) for each in parsed) for name in Directives.__dataclass_fields__)


def test_a_script_that_was_not_read_has_none() -> None:
    assert directives_from("null") is None


def test_directives_that_another_release_has_more_or_less_of_are_read() -> None:
    assert directives_from('{"max_iterations": 3, "of_later": {"x": 1}}') == Directives(max_iterations=3)
