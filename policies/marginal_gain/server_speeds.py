"""Training speed by workers and parameter servers, as Optimus models it (Peng et al., EuroSys 2018, section 3.2).

Of synchronous training with a batch of M samples in all, an iteration on w workers and u servers takes

    1 / f(u, w) = t0 M / w + t1 + t2 w / u + t3 w + t4 u

seconds: each worker computes its share of the batch, some of it takes the same time for any number; the workers'
gradients meet at the servers; and each worker and each server adds connections. Here t0 has M in it.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from predictors.arrays import Floats


def terms(workers: ArrayLike, servers: ArrayLike) -> Floats:
    """(..., 5) what the coefficients are factors of, by workers and servers (...), each at least one."""
    w, u = np.broadcast_arrays(np.asarray(workers, dtype=np.float64), np.asarray(servers, dtype=np.float64))
    return np.stack([1.0 / w, np.ones_like(w), w / u, w, u], axis=-1)


def seconds(times: Floats, workers: ArrayLike, servers: ArrayLike) -> Floats:
    """(...) of an iteration, by the coefficients (5,)."""
    return np.asarray(terms(workers, servers) @ times)


def rate(times: Floats, workers: ArrayLike, servers: ArrayLike) -> Floats:
    """(...) iterations a second, by the coefficients (5,)."""
    return np.asarray(1.0 / seconds(times, workers, servers))


def fitted(workers: Floats, servers: Floats, measured: Floats) -> Floats:
    """The coefficients (5,), none below 0, that fit the seconds (k,) measured on these numbers (k,) with the least
    squares of relative errors (section 3.2: non-negative least squares)."""
    found, _ = nnls(terms(workers, servers) / measured[:, None], np.ones(len(measured)))
    return np.asarray(found, dtype=np.float64)
