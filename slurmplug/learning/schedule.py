"""When predictors are trained again, and on how many runs: by the daemon, and in simulations of it. Pure."""

MAX_RUNS = 20_000
"""The latest finished runs that run times are learned from."""
RETRAIN_SHARE = 0.2
"""Predictors are trained again when this share of the finished runs is new, or a day has passed."""
MIN_NEW_RUNS = 5
"""The fewest runs that have to finish before predictors are trained again."""
_DAY = 86_400.0


def training_is_due(new: int, runs: int, seconds: float) -> bool:
    """Whether to train again. new: runs that finished since the last training, so many seconds ago; runs: in all."""
    return new >= MIN_NEW_RUNS and (new >= RETRAIN_SHARE * runs or seconds > _DAY)
