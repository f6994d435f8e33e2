"""The figures in docs/figures that belong to tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FIGURES = Path(__file__).parents[1] / "figures"
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""x and y of each line, by its label"""


def bars(name: str, groups: Mapping[str, Mapping[str, float]], label: str) -> None:
    """A group of bars each, a bar for each policy in it."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(policy for group in groups.values() for policy in group))
    width = 0.8 / len(names)
    for number, policy in enumerate(names):
        values = [group.get(policy, np.nan) for group in groups.values()]
        axes.bar(np.arange(len(groups)) + (number + 0.5) * width - 0.4, values, width, label=policy)
    axes.set_xticks(np.arange(len(groups)), list(groups))
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=5, fontsize=7)
    _save(figure, name)


def panels(name: str, drawn: Mapping[str, Lines], *, columns: int = 4, marker: str = "o") -> None:
    """Small plots side by side, each with its lines; a label has the same colour in all of them."""
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.5 * rows), layout="constrained")
    axes: list[Axes] = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    labels = list(dict.fromkeys(label for lines in drawn.values() for label in lines))
    for (title, lines), each in zip(drawn.items(), axes, strict=False):
        for label, (x, y) in lines.items():
            number = labels.index(label)
            each.plot(x, y, f"C{number % 10}", ls="-" if number < 10 else "--", marker=marker, ms=3, lw=1, label=label)
        each.set_title(title, fontsize=8)
        each.tick_params(labelsize=7)
        each.grid(alpha=0.3)
    for unused in axes[len(drawn) :]:
        unused.set_axis_off()
    handles = {text: line for each in axes for line, text in zip(*each.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=7, fontsize=7)
    _save(figure, name)


def _save(figure: Figure, name: str) -> None:
    figure.savefig(FIGURES / f"{name}.png", dpi=90)
