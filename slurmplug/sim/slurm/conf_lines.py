"""The lines of a slurm.conf.

As in slurm.conf(5): keywords in any case, `\\` at the end of a line continues it, `#` begins a remark, `DEFAULT` lines
of nodes and partitions hold for those after them. `Include` is followed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmplug.errors import DataError
from slurmplug.sim.workloads.rows import as_number, open_lines, quoted

MOST_INCLUDES = 20
_ENTRY = re.compile(r"""([A-Za-z0-9_]+)\s*=\s*("[^"]*"|\S*)""")


@dataclass(frozen=True)
class ConfLines:
    """Values by keyword in lower case; of each node, node set and partition, these with their DEFAULT lines applied."""

    values: dict[str, str] = field(default_factory=dict)
    nodes: list[Mapping[str, str]] = field(default_factory=list)
    node_sets: list[Mapping[str, str]] = field(default_factory=list)
    partitions: list[Mapping[str, str]] = field(default_factory=list)


def read(path: Path) -> ConfLines:
    """Raises DataError where it cannot be read."""
    conf = ConfLines()
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for entries in _entries(path, []):
        kind = next((name for name in defaults if name in entries), "")
        if "nodeset" in entries:
            conf.node_sets.append(entries)
        elif not kind:
            conf.values.update(entries)
        elif entries[kind].upper() == "DEFAULT":
            defaults[kind].update({name: value for name, value in entries.items() if name != kind})
        else:
            (conf.nodes if kind == "nodename" else conf.partitions).append({**defaults[kind], **entries})
    return conf


def number(values: Mapping[str, str], name: str, default: float) -> float:
    """Raises ValueError."""
    if not (text := values.get(name, "")):
        return default
    if (found := as_number(text)) is None or found < 0:
        raise ValueError(f"{name} is {quoted(text)}, not a number from 0")
    return found


def _entries(path: Path, open_files: list[Path]) -> Iterator[dict[str, str]]:
    """The keywords of each line, in lower case."""
    if len(open_files) > MOST_INCLUDES or path in open_files:
        raise DataError(f"{path}: is included by itself, or through more than {MOST_INCLUDES} files")
    with open_lines(path) as lines:
        for line in _whole_lines(lines):
            word, _, rest = line.partition(" ")
            if word.lower() == "include":
                yield from _entries(path.parent / rest.strip(), [*open_files, path])
            elif found := {name.lower(): value.strip('"') for name, value in _ENTRY.findall(line)}:
                yield found


def _whole_lines(lines: Iterator[str]) -> Iterator[str]:
    whole = ""
    for line in lines:
        text = line.partition("#")[0].rstrip()
        if text.endswith("\\"):
            whole += text[:-1]
            continue
        if whole := (whole + text).strip():
            yield whole
        whole = ""
