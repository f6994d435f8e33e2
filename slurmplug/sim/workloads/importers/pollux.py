"""The workloads of Pollux (Qiao et al., OSDI 2021) and Sia: `time,name,application,num_replicas,batch_size`.

An iteration is an epoch. Each job runs at its own batch size, on its `num_replicas` GPUs or, where the policy resizes,
on as many as the batch fills. Times come from the measured profiles; see `measured`.
"""

from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.importers import measured
from slurmplug.sim.workloads.importers.trainings import Trainings
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, comma_separated

RESTART = 30.0
"""seconds, at the first start too (Pollux, section 5.3)"""
NODES = 16


def workload(request: WorkloadRequest) -> Workload:
    """`?gpu=` names the type of GPU in the profiles, `aws` (Pollux's T4) by default.

    Raises:
        WorkloadError
    """
    gpu_type = request.options.text("gpu", "aws")
    trainings = Trainings(measured.models(measured.folder(request.data, request.path), gpu_type))

    def job(row: Row) -> SimJob:
        name, batch = row.text("application", longest=64), row.integer("batch_size", least=1, most=10**7)
        gpus = row.integer("num_replicas", least=1, most=measured.MOST_GPUS)
        if name not in trainings.models:
            known = ", ".join(sorted(trainings.models))
            raise row.bad("application", f"{name} is not in the profiles: they have {known}")
        return SimJob(
            name=row.text("name"),
            submit=row.number("time", most=1e10),
            restart=RESTART,
            startup=RESTART,
            **trainings.of(name, batch, gpus).fields(gpus),
        )

    rows = comma_separated(request.path, ("time", "name", "application", "num_replicas", "batch_size"))
    jobs, skipped = collect(rows, job, skip_bad=request.skip_bad)
    a_node = trainings.gpus_a_node
    jobs.sort(key=lambda each: each.submit)
    return Workload(str(request.path), with_directives(jobs, request.seed, gpus_a_node=a_node), NODES, a_node, skipped)
