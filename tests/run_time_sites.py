"""Sites whose jobs are hard to forecast by their names: several kinds of job under each, trials, bursts, and stops."""

from typing import Any, NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats

HOUR = 3600.0


class Site(NamedTuple):
    """n jobs in order of submission, as a predictor takes them; the seconds (n,) that each ran, and would have run had
    nobody stopped it; stopped (n,); and what is learned from it (n,): of a stopped job what its pace until then gives
    for all its iterations, within its time limit, NaN where it stated no length, as `ledger.run_queries` has it."""

    jobs: list[dict[str, Any]]
    ran: Floats
    whole: Floats
    stopped: Bools
    learned: Floats


def site(
    seed: int, jobs: int = 300, *, users: int = 8, names: int = 2, kinds: int = 3, burst: int = 4, stops: float = 0.3
) -> Site:
    """Each user's run times are drawn by name and kind, which nobody declares, over two orders of magnitude; a tenth of
    the jobs are short trials; of a burst, half are of one kind; the longer ones are stopped more often."""
    random = np.random.default_rng(seed)
    typical = np.exp(random.normal(np.log(0.5 * HOUR), 1.3, (users, names, kinds)))
    made: list[dict[str, Any]] = []
    ran, whole, stopped = [], [], []
    now = 0.0
    while len(made) < jobs:
        now += random.exponential(2 * HOUR)
        user, name, kind = (int(random.integers(most)) for most in (users, names, kinds))
        limit = float(random.choice([1, 4, 12, 24])) * HOUR
        for _ in range(1 + random.poisson(burst - 1)):
            of_kind = kind if random.random() < 0.5 else int(random.integers(kinds))
            gpus = int(random.choice([1, 1, 2, 4]))
            seconds = float(typical[user, name, of_kind] * gpus**-0.8 * np.exp(0.2 * random.standard_normal()))
            if random.random() < 0.1:
                seconds = float(np.exp(random.normal(np.log(20.0), 1.0)))
            limit = max(limit, 1.2 * seconds)
            is_stopped = random.random() < stops * 2 * seconds / (seconds + HOUR)
            took = seconds * float(random.uniform(0.3, 0.8)) if is_stopped else seconds
            sizes = {"gpus": gpus, "cpus": 4.0 * gpus, "mem": 8000.0 * gpus, "time_limit": limit}
            names_of = {"user": f"user{user}", "account": f"team{user % 3}", "name": f"train{name}.sh"}
            made.append({**names_of, **sizes, "submit": now, "end": now + random.exponential(300.0) + took})
            ran.append(took)
            whole.append(seconds)
            stopped.append(is_stopped)
            now += random.exponential(20.0)
    lasted, would_last, ended = np.array(ran), np.array(whole), np.array(stopped)
    limits = np.array([each["time_limit"] for each in made])
    return Site(made, lasted, would_last, ended, _learned(seed, lasted, would_last, ended, limits))


def _learned(seed: int, ran: Floats, whole: Floats, stopped: Bools, limit: Floats) -> Floats:
    """Of a stopped job the rest at the pace of what it did, which differs by some 15% from that of the rest; a third of
    the jobs stated no length."""
    random = np.random.default_rng([seed, 1])
    imputed = np.minimum(limit, ran + (whole - ran) * np.exp(0.15 * random.standard_normal(len(ran))))
    without_length = random.random(len(ran)) < 1 / 3
    return np.where(stopped, np.where(without_length, np.nan, imputed), whole)
