"""Traces of ElasticFlow (Gu et al., ASPLOS 2023): `submit_time,model_name,ddl,batch_size,num_gpu,duration`.

Each job has a deadline of its own, in the mean one run time after its submission, so that hardly more than half of them
can be kept without more GPUs: all other directives are drawn. Run times on the job's own GPUs are the recorded ones;
how fast it is on others is measured for Pollux, at its own batch size. (choice) A model without profiles is taken for
the one that it resembles most in parameters and kind.
"""

from collections.abc import Mapping
from types import MappingProxyType

from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.importers import measured
from slurmplug.sim.workloads.importers.trainings import Trainings
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, comma_separated

NODES = 32
"""of four GPUs: the 128 of its testbed"""
ALIKE: Mapping[str, str] = MappingProxyType(
    {
        "bert": "bert", "gpt2": "bert", "deepspeech2": "deepspeech2", "resnet50": "imagenet", "inception3": "imagenet",
        "vgg16": "yolov3",
    }
)  # fmt: skip
"""the measured model that each is as fast as on other numbers of GPUs"""
COLUMNS = ("submit_time", "model_name", "ddl", "batch_size", "num_gpu", "duration")


def workload(request: WorkloadRequest) -> Workload:
    """`?gpu=` names the type of GPU in the profiles, `aws` by default. Jobs that took no time are left out.

    Raises:
        WorkloadError
    """
    gpu_type = request.options.text("gpu", "aws")
    trainings = Trainings(measured.models(measured.folder(request.data, request.path), gpu_type))
    known = [name for name, like in ALIKE.items() if like in trainings.models]

    def job(row: Row) -> SimJob | None:
        name, batch = row.text("model_name", longest=64), row.integer("batch_size", least=1, most=10**7)
        gpus, seconds = row.integer("num_gpu", least=1, most=10_000), row.number("duration", most=1e10)
        if name not in known:
            raise row.bad("model_name", f"{name} resembles no model in the profiles: known are {', '.join(known)}")
        if seconds == 0:
            return None
        fields = trainings.of(ALIKE[name], batch, gpus).fields_lasting(gpus, seconds)
        return SimJob(
            name=f"{name}-{row.text('job_id', str(row.line))}",
            submit=row.number("submit_time", most=1e10),
            deadline=row.number("ddl", most=1e11),
            **{**fields, "kind": name},
        )

    jobs, skipped = collect(comma_separated(request.path, COLUMNS), job, skip_bad=request.skip_bad)
    a_node = trainings.gpus_a_node
    jobs.sort(key=lambda each: each.submit)
    return Workload(str(request.path), with_directives(jobs, request.seed, gpus_a_node=a_node), NODES, a_node, skipped)
