"""A million inputs that are nearly right, over every parser: `make nightly`.

An error that a parser does not declare is a failure, and so is an input that takes longer than `PATIENCE`. The inputs
are those of the seed; each parser gets as many. The last line of the output gives the counts; failures are shown with
the input, once for each place in the code.
"""

import argparse
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType

from tests.bench.fuzz.mutation import Mutator
from tests.bench.fuzz.targets import Target, targets

PATIENCE = 1.0
"""seconds of the processor for one input"""
MEMORY = 6 * 1024**3
SHOWN = 600
"""bytes of an input that failed"""


class TooLongError(Exception):
    """The parser does not come to an end."""


def too_long(_: int, __: FrameType | None) -> None:
    """Called by the alarm."""
    raise TooLongError


def tried(target: Target, inputs: int, seed: int) -> tuple[list[str], int]:
    """So many inputs of one parser: the failures, and how many inputs were valid."""
    mutator = Mutator(target.samples, target.words, f"{seed} {target.name}")
    found: dict[str, str] = {}
    valid = 0
    for _ in range(inputs):
        data = mutator.next()
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        try:
            target.of(data)
            valid += 1
        except target.declared:
            continue
        except Exception as error:  # noqa: BLE001
            where = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {where.filename}:{where.lineno}"
            found.setdefault(key, f"{target.name}: {key}: {error}\n  {data[:SHOWN]!r}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return list(found.values()), valid


def main(argv: Sequence[str] | None = None) -> None:
    """All parsers, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="NAME", help="the parsers whose names contain this")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    os.environ["TZ"] = "UTC"
    failures = 0
    with ExitStack() as resources:
        chosen = [target for target in targets(resources) if options.only in target.name]
        each = -(-options.inputs // len(chosen))
        for target in chosen:
            began = time.process_time()
            found, valid = tried(target, each, options.seed)
            failures += len(found)
            line = f"{target.name}: {each} inputs, {valid} valid, {time.process_time() - began:.0f} s"
            print("\n".join([*found, line]), flush=True)
    print(f"{each * len(chosen)} inputs, {len(chosen)} parsers, seed {options.seed}: {failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
