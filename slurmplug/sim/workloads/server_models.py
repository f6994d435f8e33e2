"""How the models of DL2's Table 1 train with parameter servers, and what sample runs show of it.

The speeds are those of Optimus' equation for synchronous training (`policies.marginal_gain.server_speeds`). Its
coefficients were fitted to the measurements that DL2's authors published beside their code (github.com/pengyanghua/DL2,
config_speed.txt: 57 to 210 pairs of workers and servers of each model, a fixed batch in all) by `python -m
docs.fit_server_speeds`: mean errors from 3% to 11%. An iteration on one worker and one server takes 1.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from policies.marginal_gain.server_speeds import fitted, rate, seconds
from predictors.arrays import Floats
from slurmplug.sim.engine.job import ServerTraining, Speed

MOST = 16
"""workers, and servers"""
SAMPLES, ERROR = 10, 0.05
"""sample runs of a job before it is submitted, as in Optimus' section 3.2, and the error of each, as the standard
deviation of its logarithm (assumed)"""
TIMES: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "resnet50": (0.1296, 0.4296, 0.4332, 0.0076, 0.0000),
        "vgg16": (0.2625, 0.2812, 0.3906, 0.0656, 0.0000),
        "resnext110": (0.1935, 0.4377, 0.3096, 0.0558, 0.0033),
        "inception-bn": (0.5370, 0.2082, 0.2248, 0.0262, 0.0038),
        "seq2seq": (0.4207, 0.3425, 0.1535, 0.0833, 0.0000),
        "ctc": (0.4921, 0.4543, 0.0313, 0.0223, 0.0000),
        "dssm": (0.7601, 0.2255, 0.0000, 0.0140, 0.0004),
        "wlm": (0.1798, 0.4580, 0.3034, 0.0589, 0.0000),
    }
)


def training(rng: np.random.Generator, model: str, gpus: int, iteration: float, cpus: int) -> ServerTraining:
    """Of a job of that model, of which an iteration takes so many seconds on so many workers and as many servers; cpus:
    of each server."""
    times = np.array(TIMES[model])
    times *= iteration / seconds(times, gpus, gpus)
    workers, servers = rng.integers(1, MOST + 1, (2, SAMPLES))
    measured = seconds(times, workers, servers) * np.exp(ERROR * rng.standard_normal(SAMPLES))
    return ServerTraining(MOST, cpus, times, fitted(workers, servers, measured))


def speed(times: Floats) -> Speed:
    """With as many servers as workers, which do not have to share nodes."""
    both = np.arange(1, MOST + 1)
    return Speed(both, np.ones(MOST, dtype=np.int64), rate(times, both, both))
