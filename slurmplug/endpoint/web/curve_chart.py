"""A job's learning curve as a chart: what it reported, what is predicted, its target and its predicted stop."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from slurmplug.endpoint.web.svg import Chart, number, spanned, steps


def drawn(job: str, curve: Mapping[str, Any]) -> Markup | None:
    """The chart of a `reports.curve.Curve`; None where nothing was reported."""
    points, forecast, target, stop = curve["points"], curve["forecast"], curve["target"], curve["stop"]
    if not points:
        return None
    quantity = str(curve["quantity"])
    x = spanned([points[0][0], points[-1][0], *(each[0] for each in forecast), curve["last_iteration"] or 0.0], 0.0)
    values = [value for _, value in points] + [bound for each in forecast for bound in each[1:]]
    y = spanned(values if target is None else [*values, target])
    chart = Chart(f"Learning curve of job {job}: {quantity} by iteration", x, y)
    chart.axes(steps(x), steps(y), ("iteration", quantity))
    if forecast:
        chart.area("fan", [(at, low) for at, low, _, _ in forecast], [(at, high) for at, _, _, high in forecast])
        chart.line("median", [(at, median) for at, _, median, _ in forecast])
    chart.line("reported", points)
    for at, value in points:
        chart.dot("reported", (at, value), f"iteration {at:.15g}: {value:.6g}")
    if target is not None:
        chart.horizontal("target", target, f"target {target:.15g}")
    if stop is not None:
        chart.vertical("stop", stop["iteration"], f"predicted stop at iteration {stop['iteration']:.0f}")
    return chart.markup()


def legend(curve: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is to be seen, as class of the style sheet and text."""
    points, forecast, target, stop = curve["points"], curve["forecast"], curve["target"], curve["stop"]
    last, value = points[-1]
    found = [("reported", f"reported, last {number(value)} at iteration {last:.15g}")]
    if forecast:
        end, low, median, high = forecast[-1]
        interval = f"(90%: {number(low)} to {number(high)})"
        found.append(("fan", f"predicted, {number(median)} {interval} at iteration {end:.15g}"))
    if target is not None:
        found.append(("target", f"target {target:.15g}"))
    if stop is not None:
        found.append(("stop", f"predicted stop at iteration {stop['iteration']:.0f} (--stop={stop['option']})"))
    return found
