"""The workload of DL2 (Peng et al., arXiv 1909.06040, section 6): eight models, jobs of 147 minutes in the mean.

From the paper: a model of Table 1 at random, tens to hundreds of epochs, more than half of the jobs longer than an hour
and some of days, arrivals that follow the hours of a week; 200 jobs; the speed of a job varies about its model's.

(choices) Workers synchronise by all-reduce and hold one GPU each, from 1 to 16; a job's duration is that on the four it
requests. A job arrives each 12 minutes in the mean, which loads 64 GPUs by about three quarters. With `servers=on`
workers synchronise by parameter servers, from 1 to 16 of 1 to 4 CPUs each, as many requested as workers.
"""

import math
from dataclasses import replace

import numpy as np

from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads import server_models, synthetic
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.generators.mlfs import week_arrivals
from slurmplug.sim.workloads.load import WorkloadError, WorkloadRequest

JOBS = 200
NODES, GPUS_A_NODE = 16, 4
INTERVAL = 720.0
MEDIAN, MEAN = 65 * 60.0, 147 * 60.0
MIN_SECONDS, MAX_SECONDS = 300.0, 3 * 86_400.0
REQUESTED, MOST = 4, 16
VARIATION = 0.1
HOURS = 7 * 24
"""after which the paces of a job begin anew"""
MODELS = {
    "resnet50": "resnet50", "vgg16": "vgg16", "resnext110": "resnet50", "inception-bn": "inception4", "seq2seq": "lstm",
    "ctc": "lstm", "dssm": "mlp", "wlm": "transformer",
}  # fmt: skip
"""those of Table 1, by what each behaves like here (`synthetic`)"""


def workload(request: WorkloadRequest) -> Workload:
    """`?interval=` seconds between jobs in the mean; `&shapes=drawn` draws each model's speeds by the seed. By what
    share, each time more or less by chance, `&speeds_vary=` each hour of a job is faster than its mean (section 6.4,
    Fig. 13), and `&epochs_wrong=` a job takes more epochs than its user states (Fig. 14). `&servers=on`: with parameter
    servers, the same jobs otherwise.

    Raises:
        WorkloadError
    """
    interval = request.options.number("interval", INTERVAL, least=1e-3)
    drawn_by = synthetic.shapes_drawn_by(request)
    vary, wrong = (request.options.number(name, 0.0, most=0.9) for name in ("speeds_vary", "epochs_wrong"))
    servers = request.options.text("servers", "off", ("on", "off")) == "on"
    if servers and drawn_by is not None:
        raise WorkloadError(
            "gen:dl2: shapes=drawn has no effect with servers=on, whose speeds were measured: leave one out"
        )
    rng = np.random.default_rng(request.seed)
    count = request.jobs or JOBS
    jobs = [_job(rng, number, at, drawn_by) for number, at in enumerate(week_arrivals(rng, count, interval * count))]
    if servers:
        by_servers = np.random.default_rng([request.seed, 2])
        jobs = [_with_servers(job, by_servers) for job in jobs]
    if vary or wrong:
        jobs = _otherwise_than_told(jobs, request.seed, vary, wrong)
    jobs_with_directives = with_directives(jobs, request.seed, gpus_a_node=GPUS_A_NODE)
    name = f"gen:dl2?interval={interval:g}" + ("&servers=on" if servers else "")
    return Workload(name, jobs_with_directives, NODES, GPUS_A_NODE)


def _with_servers(job: SimJob, rng: np.random.Generator) -> SimJob:
    """The job with parameter servers, as long on what it requests. What it sends is in its speed alone."""
    cpus, iteration = int(rng.integers(1, 5)), 1 / job.speed.at(job.gpus, 1)
    trains = server_models.training(rng, job.kind, job.gpus, iteration, cpus)
    return replace(job, servers=trains, speed=server_models.speed(trains.times), traffic=0.0)


def _otherwise_than_told(jobs: list[SimJob], seed: int, vary: float, wrong: float) -> list[SimJob]:
    """The jobs with speeds that vary, and stated epochs of which they take that share more or less."""
    rng = np.random.default_rng([seed, 1])
    signs, more = rng.choice([-1.0, 1.0], (len(jobs), HOURS)), rng.choice([-1.0, 1.0], len(jobs))
    return [
        replace(
            job,
            paces=1 + vary * signs[at] if vary else job.paces,
            stated_iterations=max(round(job.iterations / (1 + wrong * more[at])), 1),
        )
        for at, job in enumerate(jobs)
    ]


def _job(rng: np.random.Generator, number: int, at: float, drawn_by: int | None) -> SimJob:
    model = str(rng.choice(list(MODELS)))
    sigma = math.sqrt(2 * math.log(MEAN / MEDIAN))
    seconds = float(np.clip(MEDIAN * math.exp(sigma * rng.standard_normal()), MIN_SECONDS, MAX_SECONDS))
    epochs = int(10 ** rng.uniform(1.3, 2.5))
    sampled = synthetic.sampled(epochs)
    losses, accuracies = synthetic.learning(rng, len(sampled))
    speed = synthetic.lasting(MODELS[model], REQUESTED, epochs, seconds, GPUS_A_NODE, drawn_by=drawn_by)
    varied = float(np.exp(VARIATION * rng.standard_normal()))
    params = synthetic.MODELS[MODELS[model]].params
    return SimJob(
        name=f"{model}-{number}",
        submit=at,
        gpus=REQUESTED,
        iterations=epochs,
        speed=Speed(speed.gpus, speed.nodes, speed.rate * varied),
        kind=model,
        gpus_min=1,
        gpus_max=MOST,
        cpus=REQUESTED * int(rng.integers(1, 5)),
        curve_at=sampled,
        losses=losses,
        accuracies=accuracies,
        params=params,
        traffic=8 * params * 100,
    )
