"""Loading what a command needs."""

import gc
import sys
from importlib import import_module
from types import ModuleType


def load(name: str) -> ModuleType:
    """A module, which stays loaded until the process ends.

    Python's collector of cycles looks neither through what is loaded nor, when the process ends, through all of it
    again: 0.05 s of a report.
    """
    if name in sys.modules:
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()
        gc.freeze()
