"""Workloads that others wrote: a few lines of each format, written here after its description."""

import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.workloads.directives import run_time_alone
from slurmplug.sim.workloads.load import WorkloadError, load

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path

    return put


# --- Pollux ---------------------------------------------------------------------------------------------------------

PLACEMENTS = """model,gpu_type,placement,local_bsz,step_time_s,sync_time_s
cifar10,aws,1,32,0.1,0.0
cifar10,aws,1,128,0.4,0.0
cifar10,aws,2,32,0.12,0.02
cifar10,aws,2,128,0.42,0.02
cifar10,aws,11,32,0.2,0.1
cifar10,aws,11,128,0.5,0.1
cifar10,dgx,1,32,0.01,0.0
"""
SCALABILITY = "model,gpu_type,num_nodes,num_replicas,local_bsz,step_time_s,sync_time_s\n"
CURVES = """model,batch_size,epoch,progress,iteration,metric,grad_sqr,grad_var
cifar10,128,1,100,100,0.5,1,0
cifar10,128,2,200,200,0.8,1,0
cifar10,256,1,100,50,0.4,1,0
cifar10,256,2,200,100,0.7,1,0
"""


@pytest.fixture
def profiles(write: Write) -> Path:
    write("profiles/throughput_placements.csv.gz", PLACEMENTS)
    write("profiles/throughput_scalability.csv", SCALABILITY)
    return write("profiles/validation_curves.csv", CURVES).parent


def pollux(write: Write, *rows: str, data: Path | None = None, **options: bool) -> tuple[SimJob, ...]:
    heading = "time,name,application,num_replicas,batch_size"
    return load(str(write("w/workload-1.csv", "\n".join([heading, *rows]) + "\n")), data=data, **options).jobs


@pytest.mark.usefixtures("profiles")
def test_a_pollux_job_takes_its_measured_steps(write: Write) -> None:
    (job,) = pollux(write, "60,cifar10-0,cifar10,2,128")
    # No noise in the gradient: 200 steps, each of 64 samples a GPU, between the times for 32 and for 128.
    assert job.iterations == 2
    assert run_time_alone(job, 2) == pytest.approx(200 * (0.12 + 0.3 * 32 / 96))
    assert 2 / job.speed.at(2, 2) == pytest.approx(200 * (0.2 + 0.3 * 32 / 96))
    assert 2 / job.speed.at(1, 1) == pytest.approx(200 * 0.4)
    assert (job.submit, job.gpus, job.gpus_min, job.gpus_max, job.kind) == (60, 2, 1, 4, "cifar10")


@pytest.mark.usefixtures("profiles")
def test_a_batch_larger_than_a_gpu_holds_is_gathered_in_passes(write: Write) -> None:
    (job,) = pollux(write, "0,cifar10-0,cifar10,1,256")
    assert 2 / job.speed.at(1, 1) == pytest.approx(200 * (0.4 + 0.4))


@pytest.mark.usefixtures("profiles")
def test_a_pollux_job_learns_as_it_was_measured_at_its_batch_size(write: Write) -> None:
    small, large, between = pollux(write, *(f"0,j{batch},cifar10,1,{batch}" for batch in (128, 256, 192)))
    assert small.accuracies.tolist() == [0.5, 0.8]
    assert large.accuracies.tolist() == [0.4, 0.7]
    np.testing.assert_allclose(between.accuracies, [0.45, 0.75])
    np.testing.assert_allclose(between.losses, [0.55, 0.25])
    assert between.curve_at.tolist() == [1, 2]
    assert between.target == pytest.approx(0.99 * 0.75)


@pytest.mark.usefixtures("profiles")
def test_a_pollux_job_of_another_model_is_a_bad_row(write: Write) -> None:
    rows = ("0,a,cifar10,1,128", "1,b,gpt9,1,128", "2,c,cifar10,none,128")
    with pytest.raises(WorkloadError, match=r"workload-1.csv, line 3, column application: gpt9 is not in the profiles"):
        pollux(write, *rows)
    assert [job.name for job in pollux(write, *rows, skip_bad=True)] == ["a"]


def test_a_pollux_workload_without_profiles_says_how_to_name_them(write: Write, profiles: Path) -> None:
    assert pollux(write, "0,a,cifar10,1,128", data=profiles)
    with pytest.raises(WorkloadError, match="--data"):
        pollux(write, "0,a,cifar10,1,128", data=profiles.parent / "w")


def test_where_too_little_was_measured_the_nearest_number_of_gpus_tells(write: Write, profiles: Path) -> None:
    write("profiles/throughput_placements.csv.gz", "\n".join(PLACEMENTS.splitlines()[:3]) + "\n")
    (job,) = pollux(write, "0,cifar10-0,cifar10,2,128", data=profiles)
    assert job.speed.at(2, 1) == job.speed.at(1, 1)


@pytest.mark.usefixtures("profiles")
def test_a_type_of_gpu_that_was_not_measured_is_refused(write: Write) -> None:
    path = write("w/x.csv", "time,name,application,num_replicas,batch_size\n0,a,cifar10,1,128\n")
    with pytest.raises(WorkloadError, match="type 'v100'"):
        load(f"pollux:{path}?gpu=v100")


# --- what users want ------------------------------------------------------------------------------------------------


def test_deadlines_are_those_of_mlfs_and_the_same_for_the_same_seed(write: Write) -> None:
    rows = "\n".join(f"{i},{10 * i},{3600 * (1 + i % 40)},1,v" for i in range(200))
    path = write("p.csv", f"job_id,submit_s,duration_s,num_gpus,vc\n{rows}\n")
    jobs = load(str(path), seed=3).jobs
    for job in jobs:
        latest = max(1.1 * run_time_alone(job, 8), 24 * 3600)
        assert max(1.1 * run_time_alone(job, 8), 1800) - 1e-3 <= job.deadline - job.submit <= latest + 1e-3
        assert job.urgency in range(1, 11)
        assert job.time_limit > run_time_alone(job, 8)
    assert [job.deadline for job in load(str(path), seed=3).jobs] == [job.deadline for job in jobs]
    assert [job.deadline for job in load(str(path), seed=4).jobs] != [job.deadline for job in jobs]
    assert [job.deadline for job in load(str(path), seed=3, jobs=5).jobs] == [job.deadline for job in jobs[:5]]


# --- Philly, Tiresias -----------------------------------------------------------------------------------------------


def test_a_philly_job_takes_its_recorded_time_on_its_own_gpus(write: Write) -> None:
    path = write(
        "philly.csv.gz", "job_id,submit_s,timestamp,num_gpus,duration_s,vc\n7,30,x,16,900,abc\n8,40,x,1,0,abc\n"
    )
    workload = load(str(path))
    (job,) = workload.jobs
    assert (job.name, job.submit, job.gpus, job.user) == ("7", 30, 16, "abc")
    assert run_time_alone(job, 8) == pytest.approx(900)
    assert len(job.losses) == len(job.accuracies) == len(job.curve_at) == job.iterations
    assert (workload.nodes * workload.gpus_a_node, job.managed) == (2472, True)


@pytest.mark.usefixtures("profiles")
def test_an_elastic_philly_job_takes_its_recorded_time_and_others_as_measured_relative_to_it(write: Write) -> None:
    path = write(
        "philly.csv", "job_id,submit_s,num_gpus,duration_s,vc\n7,30,1,900,abc\n8,40,2,450,abc\n9,50,100,30,b\n"
    )
    one, two, many = load(f"philly:{path}?elastic=on&gpu=aws").jobs
    # 128 samples fill one GPU, and give four 32 each; a step takes .4 s on one, and .22 s on two.
    assert (one.kind, one.gpus, one.gpus_min, one.gpus_max, one.iterations) == ("cifar10", 1, 1, 4, 2)
    assert run_time_alone(one, 2) == pytest.approx(900)
    assert one.speed.at(2, 1) / one.speed.at(1, 1) == pytest.approx(0.4 / (0.12 + 0.3 * 32 / 96))
    # 256 fill two: .42 s a step, where one gathers two passes of .4 s.
    assert run_time_alone(two, 2) == pytest.approx(450)
    assert two.speed.at(1, 1) / two.speed.at(2, 1) == pytest.approx(0.42 / 0.8)
    assert (many.gpus_min, many.gpus_max) == (0, 0)  # more than were ever measured
    assert run_time_alone(many, 2) == pytest.approx(30)
    assert one.accuracies.tolist() == [0.5, 0.8]


@pytest.mark.usefixtures("profiles")
def test_a_philly_job_for_which_no_model_was_measured_is_refused(write: Write) -> None:
    path = write("philly.csv", "job_id,submit_s,num_gpus,duration_s,vc\n7,30,1,9000,abc\n")
    with pytest.raises(WorkloadError, match="none of bert, deepspeech2: name another with"):
        load(f"philly:{path}?elastic=on&gpu=aws")


def test_elastic_philly_needs_the_profiles(write: Write) -> None:
    path = write("philly.csv", "job_id,submit_s,num_gpus,duration_s,vc\n7,30,1,900,abc\n")
    with pytest.raises(WorkloadError, match="--data"):
        load(f"philly:{path}?elastic=on")


@pytest.mark.usefixtures("profiles")
def test_an_elasticflow_job_keeps_its_deadline_and_trains_as_the_model_that_it_resembles(write: Write) -> None:
    write("profiles/validation_curves.csv", CURVES.replace("cifar10", "imagenet"))
    write("profiles/throughput_placements.csv.gz", PLACEMENTS.replace("cifar10", "imagenet"))
    heading = "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration"
    path = write("trace.csv", f"{heading}\n0,100,5,inception3,1600,128,2,900,900,5\n1,200,5,vgg16,900,64,1,9,9,5\n")
    (job,) = load(str(path), skip_bad=True).jobs
    assert (job.name, job.kind, job.submit, job.deadline) == ("inception3-0", "inception3", 100, 1600)
    assert (job.gpus, job.gpus_min, job.gpus_max, job.iterations) == (2, 1, 4, 2)
    assert run_time_alone(job, 2) == pytest.approx(900)
    assert job.speed.at(1, 1) / job.speed.at(2, 1) == pytest.approx((0.12 + 0.3 * 32 / 96) / 0.4)
    with pytest.raises(WorkloadError, match="line 3, column model_name: vgg16 resembles no model"):
        load(str(path))


def test_tiresias_jobs_keep_their_model_iterations_and_duration(write: Write) -> None:
    heading = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
    path = write("60_job.csv", f"{heading}\n0,1,0,606,vgg19,164,30\n1,8,30,133,resnet50,147,23\n")
    first, second = load(str(path)).jobs
    assert (first.kind, first.iterations, second.gpus, second.submit) == ("vgg16", 606, 8, 30)
    assert [run_time_alone(job, 4) for job in (first, second)] == pytest.approx([164, 147])


def test_gpu_times_alone_become_jobs_of_one_gpu_in_another_order(write: Write) -> None:
    path = write("yarn.csv", "gpu_time_s\n" + "\n".join(str(100 + i) for i in range(200)) + "\n")
    jobs = load(f"tiresias:{path}?interval=10", seed=1).jobs
    takes = [round(run_time_alone(job, 4)) for job in jobs]
    assert sorted(takes) == [100 + i for i in range(200)]
    assert takes != sorted(takes)
    assert {job.gpus for job in jobs} == {1}
    assert 1400 < jobs[-1].submit < 2800


# --- SWF, sacct, UB-HPC ---------------------------------------------------------------------------------------------


def swf(*jobs: str) -> str:
    return "; MaxProcs: 64\n; MaxNodes: 8\n; Version: 2.2\n" + "".join(f"{job}\n" for job in jobs)


def test_swf_jobs_ask_for_processors_and_those_that_never_ran_are_left_out(write: Write) -> None:
    path = write("log.swf", swf(
        "1 0 5 100 8 -1 -1 8 600 -1 1 3 4 -1 2 1 -1 -1",
        "2 9 -1 -1 -1 -1 -1 16 600 -1 0 3 4 -1 2 1 -1 -1",
        "3 20 5 700 -1 -1 -1 4 600 -1 1 9 4 -1 2 1 -1 -1",
    ))  # fmt: skip
    workload = load(str(path))
    assert (workload.nodes, workload.gpus_a_node) == (8, 8)
    assert [(job.name, job.gpus, job.user, job.managed) for job in workload.jobs] == [
        ("1", 8, "user3", False), ("3", 4, "user9", False),
    ]  # fmt: skip
    assert [run_time_alone(job, 8) for job in workload.jobs] == pytest.approx([100, 700])
    assert [job.time_limit for job in workload.jobs] == [600, 700]


def test_a_bad_swf_row_is_named_by_line_and_field(write: Write) -> None:
    path = write("log.swf", swf("1 0 5 soon 8 -1 -1 8 600 -1 1 3 4 -1 2 1 -1 -1", "2 3 4", "3 0 0 1 1" + " -1" * 13))
    with pytest.raises(WorkloadError, match=r"log.swf, line 4, column run: is not a number: 'soon'"):
        load(str(path))
    workload = load(str(path), skip_bad=True)
    assert (len(workload.jobs), workload.skipped) == (1, 2)


SACCT = "JobID|User|Account|Partition|QOS|Submit|Elapsed|Timelimit|AllocTRES|NCPUS|State\n"


def test_sacct_gives_jobs_with_gpus_their_times_and_limits(write: Write) -> None:
    path = write("sacct.txt", SACCT
        + "7|ada|lab|gpu|high|2026-03-01T10:00:00|1-02:00:00|2-00:00:00|cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G|8|C\n"
        + "7.batch||lab|||2026-03-01T10:00:00|02:00:00||cpu=8,gres/gpu=4|8|C\n"
        + "8_1|bob|lab|gpu|normal|2026-03-01T09:00:00|00:10:30|UNLIMITED|cpu=2,gres/gpu=1|2|F\n"
        + "9|bob|lab|gpu|normal|2026-03-01T09:00:01|00:00:00|01:00:00|cpu=2,gres/gpu=1|2|CANCELLED\n"
        + "10|bob|lab|cpu|normal|2026-03-01T09:00:02|00:05:00|01:00:00|cpu=2,mem=1G,node=2|2|C\n"
    )  # fmt: skip
    first, second = load(str(path)).jobs
    assert (first.name, first.submit, first.gpus, first.user) == ("8_1", 0, 1, "bob")
    assert (second.name, second.submit, second.gpus, second.cpus, second.memory) == ("7", 3600, 4, 8, 65536)
    assert [run_time_alone(job, 8) for job in (first, second)] == pytest.approx([630, 26 * 3600])
    assert math.isnan(first.time_limit)
    assert second.time_limit == 2 * 86_400
    assert [(job.gpus, job.nodes) for job in load(f"sacct:{path}?cpu_jobs=on").jobs] == [(1, 0), (0, 2), (4, 0)]


def test_sacct_gives_the_type_of_gpu_that_a_job_requested(write: Write) -> None:
    heading = SACCT.replace("AllocTRES", "AllocTRES|ReqTRES")
    of = "ada|lab|gpu|normal|2026-03-01T10:00:00|00:10:00|01:00:00"
    rows = [
        ("cpu=2,gres/gpu:a100=2,gres/gpu=2", "cpu=2,gres/gpu:a100=2,gres/gpu=2"),
        ("cpu=2,gres/gpu:a100=2,gres/gpu=2", "cpu=2,gres/gpu=2"),
        ("cpu=2,gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2", "gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2"),
        ("cpu=2,gres/gpu=2", ""),
    ]
    path = write(
        "sacct.txt",
        heading + "".join(f"{n}|{of}|{allocated}|{asked}|2|C\n" for n, (allocated, asked) in enumerate(rows)),
    )
    assert [job.gpu_type for job in load(f"sacct:{path}").jobs] == ["a100", "", "", ""]


def test_sacct_gives_the_cpus_that_a_job_requested(write: Write) -> None:
    heading = SACCT.replace("AllocTRES", "AllocTRES|ReqTRES")
    of = "ada|lab|gpu|normal|2026-03-01T10:00:00|00:10:00|01:00:00|cpu=8,gres/gpu=2"
    rows = "".join(
        f"{n}|{of}|{asked}|8|C\n" for n, asked in enumerate(("billing=1,cpu=3,mem=1G", "mem=1G", "cpu=many"))
    )
    found = load(f"sacct:{write('sacct.txt', heading + rows)}").jobs
    assert [(job.cpus, job.cpus_requested) for job in found] == [(8, 3), (8, 0), (8, 0)]


@pytest.mark.parametrize(("cell", "bad"), [("yesterday", "Submit"), ("2026-13-01T00:00:00", "Submit")])
def test_a_bad_sacct_row_is_named(write: Write, cell: str, bad: str) -> None:
    path = write("sacct.txt", SACCT + f"7|ada|lab|gpu|high|{cell}|00:02:00|01:00:00|gres/gpu=4|8|C\n")
    with pytest.raises(WorkloadError, match=f"line 2, column {bad}: is no time"):
        load(str(path))


NAMED = "JobID|Submit|ElapsedRaw|AllocTRES|State|JobName\n"


def test_the_names_of_jobs_that_users_choose_stop_nothing(write: Write) -> None:
    names = (b"train", b"a|b", b"a\nb|c", b"\xff", b"x\x1b[31m", b"nl\r\ttab", b"\x00", b"y" * 3000)
    lines = [b"%d|%d|60|gres/gpu=1|COMPLETED|%s\n" % (n, 100 + n, name) for n, name in enumerate(names, 1)]
    path = write("sacct.txt", "")
    path.write_bytes(NAMED.encode() + b"".join(lines))
    found = [job.name for job in load(f"sacct:{path}").jobs]
    assert found == ["train", "a|b", "a", "\ufffd", "x\\x1b[31m", "nl\\x0d\\x09tab", "\\x00", "y" * 256]


def test_a_list_of_sacct_that_was_cut_is_an_error(write: Write) -> None:
    path = write("sacct.txt", NAMED + "1|100|60|gres/gpu=1|COMPLETED|train\n2|101|60|gres")
    with pytest.raises(WorkloadError, match=r"sacct.txt, line 3: has 4 cells; the heading has 6"):
        load(f"sacct:{path}")
    assert len(load(f"sacct:{path}", skip_bad=True).jobs) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not what sacct --parsable2 lists: its first line is ''"),
        (
            "JobID,Submit,ElapsedRaw\n",
            "is not what sacct --parsable2 lists: its first line is 'JobID,Submit,ElapsedRaw'",
        ),
        ("JobID|Submit|JobID\n", "its heading names a column twice"),
        ("JobID|ElapsedRaw\n", "its heading lacks Submit"),
        ("JobID|Submit|ElapsedRaw\n1|100|60\n", "has neither AllocTRES nor ReqTRES, which list GPUs"),
        (NAMED + "1|100|60|cpu=1|COMPLETED|x\n", "lists no GPUs of any job: does AccountingStorageTRES have gres/gpu"),
        (NAMED + "1|100|-60|gres/gpu=1|COMPLETED|x\n", "column ElapsedRaw: is '-60', not from 0 to"),
        (NAMED + "1|100|1e300|gres/gpu=1|COMPLETED|x\n", "column ElapsedRaw: is '1e300', not from 0 to"),
        (NAMED + "1|Mon 10:00|60|gres/gpu=1|COMPLETED|x\n", "run sacct with SLURM_TIME_FORMAT=%s"),
    ],
)
def test_what_cannot_be_used_of_sacct_says_what_to_do(write: Write, text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        load(f"sacct:{write('sacct.txt', text)}")


def test_what_columns_of_sacct_that_are_missing_would_tell_is_not_known(write: Write) -> None:
    path = write("sacct.txt", NAMED + "1|100|60|gres/gpu=1|COMPLETED|x\n2|100|60|gres/gpu=1|RUNNING|x\n")
    said = load(f"sacct:{path}").not_known
    assert {"users", "accounts", "time limits", "how long the jobs would have taken that still ran (1)"} <= set(said)
    path = write("all.txt", SACCT + "7|ada|lab|gpu|high|2026-03-01T10:00:00|1:00|1:00|gres/gpu=4|8|COMPLETED\n")
    assert {"users", "accounts", "time limits"}.isdisjoint(load(f"sacct:{path}").not_known)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("1:30", 90), ("2:00:01", 7201), ("1-0", 86_400), ("1-1:30", 91_800), ("0-00:00:05.123", 5)],
)
def test_spans_are_read_as_slurm_writes_them(write: Write, text: str, seconds: float) -> None:
    path = write("sacct.txt", SACCT + f"7|a|l|g|h|2026-03-01T10:00:00|{text}||gres/gpu=1|8|C\n")
    assert run_time_alone(load(str(path)).jobs[0], 4) == pytest.approx(seconds)


def test_ubhpc_events_and_their_table_tell_the_same(write: Write) -> None:
    events = write(
        "week.events",
        "".join(
            f"-dt {at} -e submit_batch_job | -J j{at} -sim-walltime 300 --uid=u1 -t 00:10:00 -n 8 -N 2 --gres=gpu:2 "
            f"-A lab -p gpu -q normal --mem=2G pseudo.job\n"
            for at in (5, 6)
        )
        + "-dt 7 -e submit_batch_job | -jid 9 -sim-walltime 30 --uid=u1 -t 1:00 -n 64 --ntasks-per-node=32 x\n",
    )
    heading = "job_id,submit_s,user,partition,qos,nodes,ntasks,gpus_per_node,mem,timelimit_s,run_s,constraint,account"
    rows = "".join(f"j{at},{at},u1,gpu,normal,2,8,2,2G,600,300,,lab\n" for at in (5, 6))
    table = write("week.csv", f"{heading}\n{rows}j7,7,u1,gpu,normal,2,64,0,,60,30,,\n")
    replayed, listed = load(str(events)).jobs, load(str(table)).jobs
    assert len(replayed) == 2
    for one, other in zip(replayed, listed, strict=True):
        assert (one.name, one.submit, one.gpus, one.cpus) == (other.name, other.submit, other.gpus, other.cpus)
        assert (one.gpus, one.time_limit, one.memory, one.account) == (4, 600, 4096, "lab")
    assert load(f"ubhpc:{events}?cpu_jobs=on").jobs[-1].cpus == 64


def test_a_line_that_is_no_event_is_a_bad_row(write: Write) -> None:
    good = "-dt 5 -e submit_batch_job | -J j -sim-walltime 3 -n 1 -N 1 --gres=gpu:1 x\n"
    path = write("w.events", good + "-dt 5 -e reboot\n" + good.replace("-n 1", "-n 'one"))
    with pytest.raises(WorkloadError, match="line 2: is no event"):
        load(str(path))
    assert load(str(path), skip_bad=True).skipped == 2
