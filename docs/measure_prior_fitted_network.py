"""Compares a prior-fitted network with the predictor of learning curves, on kinds that neither has learnt from.

    python -m docs.measure_prior_fitted_network train MODEL.pt                # 15 minutes with one thread
    python -m docs.measure_prior_fitted_network compare MODEL.pt FILE...      # JSON lines with val_acc, group, hp

As Adriaensen, Rakotoarison, Müller and Hutter (NeurIPS 2023) do, a transformer is trained on draws of a prior, once,
and then predicts without a fit. Here a row of its input is a curve's beginning, as the features of the predictor and
as what is known of its run; rows of the history also have the gain that came, and the other rows attend to them alone
(Müller and others, ICLR 2022). Nothing is chosen by the curves that it is compared on. Needs torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import t as student_t
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor, nn

from predictors.arrays import Floats, Ints
from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.learning_curve.features import FEATURE_COUNT, TOP, CurveScale, curve_features, make_examples
from predictors.learning_curve.metadata import MetadataEncoder
from predictors.learning_curve.prior import sample_prior_curves
from predictors.quantile_table import INNER_LEVELS
from predictors.scoring import distribution_scores
from predictors.trials.curves import FEWEST_OBSERVED, FOLDS, FinishedCurve
from slurmplug.learning.dataset_files import read_accuracy_curves

TASKS, HELD_OUT_TASKS = 20_000, 256
HISTORY, QUERIES = 128, 32
"""curves of a task whose end is given at most, and curves to predict"""
STEPS, TASKS_PER_STEP = 10_000, 16
HISTORY_SIZES = (0, 16, 48, 128, 128)
METADATA_COLUMNS, BARS, WIDTH, LAYERS, HEADS = 8, 100, 64, 4, 4
SUBSETS = 4
"""random parts of a longer history, over which predictions are averaged"""
SHARES = (0.1, 0.25, 0.5)
_MISSING = -0.5
_PLAIN_FEATURES = [0, 1, 2, 3, 4, *range(8, 17)]
"""the features of a curve that are neither of the parametric mixture nor means of segments"""
_BOOSTING_LEVELS = np.array([0.025, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 0.975])


class Rows(NamedTuple):
    """x: (n, features and metadata). gain: (n,) that came by the end."""

    x: Floats
    gain: Floats


# --- histories drawn from the prior -----------------------------------------------------------------------------------


class KindGenerator:
    """Random numbers for `sample_prior_curves` that runs of one kind share in part, as normal variables that correlate.

    own: for each variable, what the runs do not share, (count,).
    """

    def __init__(self, random: Generator, length: int) -> None:
        self._random, self._length = random, length
        self.own: list[Floats] = []

    def random(self, size: int | tuple[int, ...]) -> Floats:
        """Uniform numbers in [0, 1); those of each iteration are independent."""
        count, *columns = (size,) if isinstance(size, int) else size
        if columns == [self._length]:
            return self._random.random(size)
        shape = (count, *columns)
        own = self._random.standard_normal(shape)
        self.own.append(own.reshape(count, -1)[:, 0])
        shared = float(np.clip(self._random.uniform(-0.4, 1.6), 0.0, 1.0))
        return ndtr(np.sqrt(shared) * self._random.standard_normal(shape[1:]) + np.sqrt(1.0 - shared) * own)

    def uniform(self, low: float, high: float, size: int | tuple[int, ...]) -> Floats:
        """Uniform numbers between two others."""
        return low + (high - low) * self.random(size)

    def normal(self, mean: float, deviation: float, size: int) -> Floats:
        """Normal numbers."""
        return mean + deviation * ndtri(np.clip(self.random(size), 1e-9, 1 - 1e-9))

    def exponential(self, scale: float, size: int) -> Floats:
        """Exponential numbers of mean `scale`."""
        return -scale * np.log1p(-np.minimum(self.random(size), 1 - 1e-9))

    def beta(self, a: float, b: float, size: int) -> Floats:
        """Numbers of a beta distribution."""
        return betaincinv(a, b, self.random(size))

    def integers(self, high: int, size: int) -> Ints:
        """Integers below `high`."""
        return np.minimum((high * self.random(size)).astype(np.int64), high - 1)

    def choice(self, high: int, size: int, p: Sequence[float]) -> Ints:
        """Integers below `high` of probabilities p."""
        return np.minimum(np.searchsorted(np.cumsum(p), self.random(size), side="right"), high - 1)

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Independent standard normal numbers."""
        return self._random.standard_normal(size)


def draw_task(random: Generator) -> Rows:
    """`QUERIES` rows of one kind, then `HISTORY` rows of up to six kinds: with that one among them, or without."""
    kinds = int(random.integers(1, 7))
    unseen = kinds > 1 and random.random() < 0.5
    weights = random.dirichlet(np.ones(kinds)) * (np.arange(kinds) >= unseen)
    counts = random.multinomial(HISTORY, weights / weights.sum())
    counts[0] += QUERIES
    share = float(np.exp(random.uniform(np.log(0.04), np.log(0.85))))
    parts = []
    for k in np.flatnonzero(counts).tolist():
        length = int(np.round(np.exp(random.uniform(np.log(15), np.log(400)))))
        generator = KindGenerator(random, length)
        curves = sample_prior_curves(length, int(counts[k]), generator)  # type: ignore[arg-type]
        metadata = _hyper_parameters(np.stack(generator.own, axis=1), random)
        parts.append((_rows([*curves], share), metadata))
    n, named = sum(len(rows.gain) for rows, _ in parts), random.random() < 0.7
    known = np.full((n, sum(metadata.shape[1] + named for _, metadata in parts)), _MISSING)
    row = column = 0
    for rows, metadata in parts:
        known[row : row + len(rows.gain), column : column + metadata.shape[1]] = metadata
        column += metadata.shape[1] + named
        if named:
            known[:, column - 1] = 0.0
            known[row : row + len(rows.gain), column - 1] = 1.0
        row += len(rows.gain)
    known[random.random(n) < 0.2] = _MISSING
    x = np.concatenate([rows.x for rows, _ in parts])
    return Rows(
        np.concatenate([x, _principal(known[QUERIES:], known)], axis=1),
        np.concatenate([rows.gain for rows, _ in parts]),
    )


def _rows(curves: Sequence[Floats], share: float) -> Rows:
    """A row for each normalised curve, whose first `share` is seen, without metadata."""
    x, gain = np.empty((len(curves), FEATURE_COUNT)), np.empty(len(curves))
    lengths = np.array([len(curve) for curve in curves])
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        stack = np.stack([curves[i] for i in rows.tolist()])
        seen = min(max(FEWEST_OBSERVED, round(share * length)), length - 1)
        last = stack[:, seen - 1]
        x[rows] = curve_features(stack[:, :seen], np.full(len(rows), float(length)))
        gain[rows] = (stack[:, -1] - last) / (TOP - last)
    return Rows(x, gain)


def _hyper_parameters(own: Floats, random: Generator) -> Floats:
    """(n, up to 5) ranks in [0, 1] of noisy sums of up to three of the variables `own` (n, variables)."""
    columns = int(random.integers(0, 6))
    weights = random.standard_normal((own.shape[1], columns))
    for column in range(columns):
        weights[random.permutation(len(weights))[int(random.integers(1, 4)) :], column] = 0.0
    noisy = own @ weights + random.exponential(0.5, columns) * random.standard_normal((len(own), columns))
    return np.asarray(noisy.argsort(axis=0).argsort(axis=0) / max(len(own) - 1, 1))


def _principal(history: Floats, known: Floats) -> Floats:
    """(n, METADATA_COLUMNS) the first principal components of encoded metadata, by those of the history."""
    result = np.zeros((len(known), METADATA_COLUMNS))
    if len(history) > 1 and history.shape[1]:
        centre = history.mean(axis=0)
        _, size, axes = np.linalg.svd(history - centre, full_matrices=False)
        kept = np.flatnonzero(size[:METADATA_COLUMNS] > 1e-6)
        result[:, kept] = (known - centre) @ axes[kept].T * np.sqrt(len(history)) / size[kept]
    return np.clip(result, -4.0, 4.0)


# --- the network ------------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """Logits of the bars of the gain, for queries that attend to a history.

    centre, scale: (features,) of the draws. edges: (BARS + 1,) of the bars, which are equally likely under the prior.
    """

    def __init__(self, centre: Tensor, scale: Tensor, edges: Tensor) -> None:
        super().__init__()
        for name, values in (("centre", centre), ("scale", scale), ("edges", edges)):
            self.register_buffer(name, values)
        self.row = nn.Linear(FEATURE_COUNT + METADATA_COLUMNS, WIDTH)
        self.gain = nn.Linear(2, WIDTH)
        self.nothing = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.layers = nn.ModuleList(_Layer() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, BARS))

    def forward(self, queries: Tensor, history: Tensor, gain: Tensor) -> Tensor:
        """(b, q, BARS) for queries (b, q, columns), and h rows of history (b, h, columns) with their gain (b, h)."""
        rank = self.bar(gain.contiguous()) / BARS - 0.5
        with_gain = self._embed(history) + self.gain(torch.stack([gain.clamp(-1.0, 1.0), rank], dim=-1))
        seen = torch.cat([self.nothing.expand(len(queries), -1, -1), with_gain], dim=1)
        rows = torch.cat([seen, self._embed(queries)], dim=1)
        for layer in self.layers:
            rows = layer(rows, seen.shape[1])
        return self.head(rows[:, seen.shape[1] :])

    def bar(self, gain: Tensor) -> Tensor:
        """The bar that each gain is in."""
        return torch.bucketize(gain, self.edges[1:-1])

    def _embed(self, x: Tensor) -> Tensor:
        features = ((x[..., :FEATURE_COUNT] - self.centre) / self.scale).clamp(-4.0, 4.0)
        return self.row(torch.cat([features, x[..., FEATURE_COUNT:]], dim=-1))


class _Layer(nn.Module):
    """A transformer's layer in which all rows attend to the first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, rows: Tensor, seen: int) -> Tensor:
        """Rows (b, n, WIDTH), of which the first `seen` are attended to."""
        normal = self.before(rows)
        rows = rows + self.attention(normal, normal[:, :seen], normal[:, :seen], need_weights=False)[0]
        return rows + self.feed(self.between(rows))


def train(path: Path) -> None:
    """Draw the tasks, train the network on them, and save it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    began = time.monotonic()
    x = torch.empty(TASKS + HELD_OUT_TASKS, QUERIES + HISTORY, FEATURE_COUNT + METADATA_COLUMNS)
    gain = torch.empty(x.shape[:2])
    for i in range(len(x)):
        x[i], gain[i] = (torch.from_numpy(column) for column in draw_task(random))
    print(f"{len(x)} tasks drawn in {time.monotonic() - began:.0f} s", flush=True)
    features = x[..., :FEATURE_COUNT].reshape(-1, FEATURE_COUNT)
    edges = np.unique(np.quantile(gain.numpy(), np.linspace(0.0, 1.0, BARS + 1)))
    edges = torch.from_numpy(
        np.append(edges, edges[-1] + 0.01 * np.arange(1, BARS + 2 - len(edges))).astype(np.float32)
    )
    network = Network(features.mean(dim=0), features.std(dim=0), edges)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, total_steps=STEPS, pct_start=0.1)
    for step in range(STEPS):
        which = random.integers(HELD_OUT_TASKS, len(x), TASKS_PER_STEP)
        loss = _loss(network, x[which], gain[which], int(random.choice(HISTORY_SIZES)), random)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        rate.step()
        if (step + 1) % 500 == 0:
            with torch.no_grad():
                held_out = [
                    float(_loss(network, x[:HELD_OUT_TASKS], gain[:HELD_OUT_TASKS], size, np.random.default_rng(1)))
                    for size in (0, 16, 128)
                ]
            print(step + 1, f"{time.monotonic() - began:.0f} s", np.round(held_out, 3).tolist(), flush=True)
    torch.save(network.state_dict(), path)


def _loss(network: Network, x: Tensor, gain: Tensor, size: int, random: Generator) -> Tensor:
    """Mean cross-entropy of the queries of tasks, with `size` curves of their history."""
    rows = torch.from_numpy(QUERIES + random.permutation(HISTORY)[:size])
    logits = network(x[:, :QUERIES], x[:, rows], gain[:, rows])
    return nn.functional.cross_entropy(logits.flatten(0, 1), network.bar(gain[:, :QUERIES].flatten()))


# --- the comparison ---------------------------------------------------------------------------------------------------


def by_network(
    network: Network, history: Sequence[FinishedCurve], tested: Sequence[FinishedCurve], share: float
) -> Forecast:
    """The last values of the tested runs, by the network with the history as its context."""
    encoder = MetadataEncoder.fit([run.meta for run in history])
    known = encoder.encode([run.meta for run in history])
    past = (
        _rows([_normalised(run.values) for run in history], share)
        if history
        else Rows(np.zeros((0, FEATURE_COUNT)), np.zeros(0))
    )
    seen = [run.observed(share) for run in tested]
    scales = [CurveScale.fit(values[None]) for values in seen]
    queries = np.concatenate(
        [
            curve_features(scale.normalise(values[None]), np.array([float(len(run.values))]))
            for run, values, scale in zip(tested, seen, scales, strict=True)
        ]
    )
    metas = encoder.encode([run.meta for run in tested])
    random = np.random.default_rng(0)
    cdf = np.zeros((len(tested), BARS))
    for _ in range(SUBSETS):
        rows = random.permutation(len(history))[:HISTORY]
        inputs = (
            np.concatenate([queries, _principal(known[rows], metas)], axis=1),
            np.concatenate([past.x[rows], _principal(known[rows], known[rows])], axis=1),
            past.gain[rows],
        )
        with torch.no_grad():
            logits = network(*(torch.from_numpy(values.astype(np.float32))[None] for values in inputs))[0]
        cdf += torch.softmax(logits, dim=-1).double().numpy().cumsum(axis=1) / SUBSETS
    edges = network.edges.double().numpy()
    gains = np.array([np.interp(INNER_LEVELS, np.append(0.0, row / row[-1]), edges) for row in cdf])
    return _forecast(INNER_LEVELS, gains, seen, scales, "network")


def by_boosting(history: Sequence[FinishedCurve], tested: Sequence[FinishedCurve], share: float) -> Forecast:
    """The last values of the tested runs, by gradient boosting of quantiles on fourteen features of the curve."""
    examples = make_examples([_normalised(run.values) for run in history])
    seen = [run.observed(share) for run in tested]
    scales = [CurveScale.fit(values[None]) for values in seen]
    x = np.concatenate(
        [
            curve_features(scale.normalise(values[None]), np.array([float(len(run.values))]))
            for run, values, scale in zip(tested, seen, scales, strict=True)
        ]
    )[:, _PLAIN_FEATURES]
    gains = [
        HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)
        .fit(examples.x[:, _PLAIN_FEATURES], examples.target)
        .predict(x)
        for level in _BOOSTING_LEVELS.tolist()
    ]
    return _forecast(_BOOSTING_LEVELS, np.stack(gains, axis=1), seen, scales, "boosting")


def by_predictor(history: Sequence[FinishedCurve], tested: Sequence[FinishedCurve], share: float) -> Forecast:
    """The last values of the tested runs, by the predictor that is in use."""
    predictor = LearningCurvePredictor().fit([run.values for run in history], [run.meta for run in history])
    seen = [run.observed(share) for run in tested]
    return predictor.predict_many(seen, [len(run.values) for run in tested], [run.meta for run in tested])


def compare(network: Network, runs: Sequence[FinishedCurve]) -> None:
    """Print the scores of the methods, with equal weight for all kinds: left out, without a history, and in folds."""
    for share in SHARES:
        tested = [run for run in runs if len(run.observed(share)) < len(run.values)]
        kinds = np.array([run.group for run in tested])
        left_out = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        folds = np.array_split(np.random.default_rng(0).permutation(len(tested)), FOLDS)
        for title, rounds, cold in (
            ("kinds left out", left_out, False),
            ("cold", left_out, True),
            ("folds", folds, False),
        ):
            forecasts: dict[str, Floats] = {}
            for rows in rounds:
                history = [] if cold else [run for i, run in enumerate(tested) if i not in set(rows.tolist())]
                some = [tested[i] for i in rows.tolist()]
                for name, forecast in _methods(network, history, some, share):
                    forecasts.setdefault(name, np.empty((len(tested), len(forecast.table[0]))))[rows] = forecast.table
            _print_scores(f"{title}, {share:.0%} seen", tested, left_out, forecasts)


def _methods(
    network: Network, history: Sequence[FinishedCurve], tested: Sequence[FinishedCurve], share: float
) -> Iterator[tuple[str, Forecast]]:
    yield "predictor", by_predictor(history, tested, share)
    yield "network", by_network(network, history, tested, share)
    if history:
        yield "boosting", by_boosting(history, tested, share)


def _print_scores(
    title: str, tested: Sequence[FinishedCurve], kinds: Sequence[Ints], forecasts: dict[str, Floats]
) -> None:
    """Each score is the mean over kinds, and the difference to the predictor with its 95% interval over kinds."""
    ends = np.array([run.values[-1] for run in tested])
    print(f"\n{title}: {len(tested)} runs of {len(kinds)} kinds")
    scores = {
        name: [distribution_scores(Forecast(table[rows], np.full(len(rows), name)), ends[rows]) for rows in kinds]
        for name, table in forecasts.items()
    }
    for name, of_kinds in scores.items():
        cells = []
        for score in of_kinds[0]:
            values = np.array([each[score] for each in of_kinds])
            difference = values - np.array([each[score] for each in scores["predictor"]])
            half = student_t.ppf(0.975, len(kinds) - 1) * difference.std(ddof=1) / np.sqrt(len(kinds))
            cells.append(f"{score} {values.mean():.4f} ({difference.mean():+.4f} +- {half:.4f})")
        print(f"  {name:10}", "; ".join(cells))
    errors = {name: np.array([each["mae"] for each in of_kinds]) for name, of_kinds in scores.items()}
    print("   error by kind:", {name: np.round(each, 3).tolist() for name, each in errors.items()}, flush=True)


def _normalised(values: Floats) -> Floats:
    return CurveScale.fit(values[None]).normalise(values[None])[0]


def _forecast(
    levels: Floats, gains: Floats, seen: Sequence[Floats], scales: Sequence[CurveScale], name: str
) -> Forecast:
    """A forecast of the last values, from quantiles of the gain (n, levels)."""
    last = np.array([scale.normalise(values[None])[0, -1] for values, scale in zip(seen, scales, strict=True)])[:, None]
    scale = CurveScale(*(np.concatenate(parts) for parts in zip(*(vars(one).values() for one in scales), strict=True)))
    values = scale.denormalise(last + gains * (TOP - last))
    return Forecast.quantiles(levels, values, name, lower=scale.lower, upper=scale.upper)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(Path(sys.argv[2]))
    else:
        torch.set_num_threads(1)
        state = torch.load(sys.argv[2], weights_only=True)
        loaded = Network(state["centre"], state["scale"], state["edges"])
        loaded.load_state_dict(state)
        compare(loaded.eval(), read_accuracy_curves([Path(name) for name in sys.argv[3:]]))
