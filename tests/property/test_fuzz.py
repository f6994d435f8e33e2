"""The parsers on a few of the inputs that `make nightly` tries a million of."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.bench.fuzz.run import tried
from tests.bench.fuzz.targets import Target, targets


@pytest.fixture(scope="module")
def parsers() -> Iterator[list[Target]]:
    with ExitStack() as resources:
        yield targets(resources)


def test_inputs_start_from_ones_that_are_valid(parsers: list[Target]) -> None:
    for parser in parsers:
        for sample in parser.samples:
            parser.of(sample)


def test_no_parser_raises_what_it_does_not_declare(parsers: list[Target]) -> None:
    failures = [failure for parser in parsers for failure in tried(parser, 100, seed=1)[0]]
    assert not failures, "\n".join(failures)
