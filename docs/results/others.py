"""Tables on the workloads of SLAQ and OASiS."""

from docs.results.cases import SLAQ, Case, Runs, over, pollux
from docs.results.cells import change, markdown, span
from docs.results.plots import bars


def slaq(runs: Runs) -> str:
    """SLAQ against fair shares on its own workload, where a resize costs nothing."""
    rows = []
    for arrival in (15, 10, 4):
        base = [Case(f"gen:slaq?arrival={arrival}", "fair", "20x32", seed, interval=3.0) for seed in (0, 1, 2)]
        for name in ("slaq", "slaq-maxmin"):
            ours = over(base, policy=name)
            cells = [
                change(runs.column(ours, figure), runs.column(base, figure))
                for figure in ("loss_integral", "time_to_90_loss", "time_to_95_loss", "jct_mean")
            ]
            rows.append([f"{arrival} s", name, *cells])
    head = ["arrivals", "policy", "loss integral", "time to 90%", "time to 95%", "mean JCT"]
    return markdown(head, rows)


def slaq_restart(runs: Runs) -> str:
    """On Pollux's workloads, where each resize costs a restart of 30 s, by the epoch."""
    rows = []
    for epoch in (60.0, 300.0, 900.0):
        base = over(pollux("", "fair"), interval=epoch)
        ours = over(base, policy="slaq", settings=SLAQ)
        cells = [
            change(runs.column(ours, figure), runs.column(base, figure))
            for figure in ("loss_integral", "time_to_90_loss", "jct_mean")
        ]
        rows.append([f"{epoch:g} s", *cells, f"{runs.column(ours, 'resizes').mean():.0f}"])
    return markdown(["epoch", "loss integral", "time to 90%", "mean JCT", "resizes"], rows)


def oasis(runs: Runs) -> str:
    """The sum of utilities, against OASiS'."""
    rows = []
    plotted: dict[str, dict[str, float]] = {}
    for load in (0.5, 1.0, 2.0):
        base = [Case("gen:oasis", "oasis", "50x4", seed, load=load, interval=600.0) for seed in (0, 1, 2)]
        own = runs.column(base, "utility")
        others = {name: runs.column(over(base, policy=name), "utility") for name in ("fifo", "drf", "rrh", "dorm")}
        plotted[f"load {load:g}"] = {name: float(values.mean()) for name, values in {"oasis": own, **others}.items()}
        cells = [change(values, own) for values in others.values()]
        rows.append([f"{load:g}", span(own), *cells])
    bars("oasis", plotted, "sum of utilities")
    return markdown(["load", "OASiS' utility", "FIFO", "DRF", "RRH", "Dorm"], rows)
