from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from slurmplug.cluster import parse
from slurmplug.cluster.parse import JOB_FIELDS, NODE_FIELDS, RESOURCE_REQUEST_FIELDS, Queue, Separators
from slurmplug.cluster.port import JobRows, ResourceRequest
from slurmplug.errors import ReadFailed

RowsByName: TypeAlias = Callable[[str], list[Mapping[str, Any]]]
DATA = Path(__file__).parents[2] / "data"
SEPARATORS = Separators("fMARKED", "rMARKED")
NOW = 1_795_249_600.0
HOSTILE = "a=b|c\n99|99|RUNNING\n\x1f\x01\t%s,(null)"

JOB: Mapping[str, str] = {
    "JobID": "7", "ArrayJobID": "7", "ArrayTaskID": "N/A", "HetJobID": "N/A", "UserID": "5", "UserName": "ada",
    "Account": "vision", "QOS": "normal", "Partition": "gpu", "State": "PENDING", "Reason": "Priority",
    "Name": "train", "Comment": "(null)", "Dependency": "(null)", "Feature": "(null)", "Reservation": "(null)",
    "NodeList": "", "BatchFlag": "1", "RestartCnt": "0", "SubmitTime": "1795249517", "EligibleTime": "1795249517",
    "StartTime": "N/A", "EndTime": "N/A", "TimeUsed": "0:00", "TimeLimit": "1-00:00:00",
    "PriorityLong": "1000", "Nice": "0",
    "NumNodes": "2", "NumCPUs": "4", "NumTasks": "4", "Sockets": "*", "tres-alloc": "cpu=4,mem=100M,node=2,billing=4",
    "tres-per-node": "N/A", "tres-per-job": "N/A", "tres-per-socket": "N/A", "tres-per-task": "N/A", "exit_code": "0:0",
}  # fmt: skip


def squeue(*jobs: Mapping[str, str]) -> str:
    return "".join(
        SEPARATORS.field.join({**JOB, **job}[name] for name in JOB_FIELDS) + SEPARATORS.record + "\n" for job in jobs
    )


def job(**fields: str) -> Mapping[str, Any]:
    """The one row of a queue of one job; fields with `_` for `-`."""
    given = {name.replace("_", "-") if name.startswith("tres") else name: value for name, value in fields.items()}
    return row(parse.queue(squeue(given), SEPARATORS, NOW).rows, 0)


def row(rows: JobRows, at: int) -> Mapping[str, Any]:
    return {name: getattr(rows, name)[at] for name in JobRows.__dataclass_fields__}


@pytest.fixture(params=["slurm-22.05", "slurm-24.11", "slurm-26.05"])
def recorded(request: pytest.FixtureRequest) -> Callable[[str], str]:
    return lambda name: (DATA / request.param / f"{name}.txt").read_bytes().decode("utf-8", "replace")


@pytest.fixture
def queue(recorded: Callable[[str], str]) -> Queue:
    return parse.queue(recorded("squeue"), SEPARATORS, NOW)


@pytest.fixture
def jobs(queue: Queue) -> RowsByName:
    """The rows of the recorded queue whose name begins so, by job id."""
    rows = queue.rows
    order = np.argsort(rows.job_id)
    return lambda name: [row(rows, at) for at in order.tolist() if rows.name[at].startswith(name)]


def test_jobs_that_another_member_of_a_federation_runs_keep_the_ids_that_they_had() -> None:
    """slurmctld takes their ids from them."""
    revoked = {"JobID": "4294967294", "ArrayJobID": "4294967294", "State": "REVOKED"}
    theirs = {"Name": "theirs", "SubmitTime": "1795249518"}
    reader = parse.QueueReader(SEPARATORS)
    reader.read(squeue(*({**theirs, "JobID": f"6710886{n}"} for n in range(5, 8)), {"JobID": "67108864"}), NOW)
    now = squeue(revoked, {"JobID": "67108864"}, revoked | theirs, {**theirs, "JobID": "67108866"}, revoked | theirs)
    for _ in range(2):
        rows = reader.read(now, NOW).rows
        states = dict(zip(rows.job_id.tolist(), rows.state.tolist(), strict=True))
        assert states == {67108864: "PENDING", 67108866: "PENDING", 67108865: "REVOKED", 67108867: "REVOKED"}
    assert reader.read(squeue({"JobID": "67108864"}), NOW).rows.job_id.tolist() == [67108864]


def test_such_jobs_that_were_never_listed_are_left_out() -> None:
    revoked = {"JobID": "4294967294", "ArrayJobID": "4294967294", "State": "REVOKED"}
    rows = parse.queue(squeue(revoked, {"JobID": "7"}, revoked, {**revoked, "Name": "another"}), SEPARATORS, NOW).rows
    assert rows.job_id.tolist() == [7]


# --- recorded queues ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gpus", "kind"),
    [
        ("per-node", 2, "a100"),
        ("per-task", 4, ""),
        ("typed", 2, "a100"),
        ("array", 1, "v100"),
        ("per-job", 6, ""),
        ("per-socket", 4, ""),
        ("mixed", 5, "a100,v100"),
        ("partitions", 2, ""),
        ("no-gpu", 0, ""),
    ],
)
def test_gpus_are_counted_in_all_however_they_are_requested(jobs: RowsByName, name: str, gpus: int, kind: str) -> None:
    for found in jobs(name):
        assert (found["gpus"], found["gpu_type"]) == (gpus, kind)


@pytest.mark.parametrize("name", ["per-node", "per-task", "typed", "array", "per-job", "per-socket", "mixed", "no-gpu"])
def test_where_slurm_tracks_no_gpus_the_request_is_counted(recorded: Callable[[str], str], name: str) -> None:
    text = recorded("squeue")
    for tracked in ("gres/gpu=", "gres/gpu:a100=", "gres/gpu:v100="):
        for count in range(1, 7):
            text = text.replace(f",{tracked}{count}", "")
    expected, found = parse.queue(recorded("squeue"), SEPARATORS, NOW).rows, parse.queue(text, SEPARATORS, NOW).rows
    here = expected.name == name
    assert found.gpus[here].tolist() == expected.gpus[here].tolist()


def test_elements_that_wait_together_are_one_row(jobs: RowsByName) -> None:
    waiting, *running = jobs("array")
    assert (waiting["state"], waiting["elements"], waiting["array_task"]) == ("PENDING", 8, -1)
    assert (waiting["array_tasks"], {each["array_tasks"] for each in running}) == ("2-9", {""})
    assert waiting["job_id"] == waiting["array_id"]
    assert [(each["state"], each["elements"], each["array_task"]) for each in running] == [
        ("RUNNING", 1, 0),
        ("RUNNING", 1, 1),
    ]
    assert {each["array_id"] for each in running} == {waiting["job_id"]}


def test_an_element_that_was_split_off_has_its_own_row(jobs: RowsByName) -> None:
    together, apart = jobs("split")
    assert (together["elements"], together["array_task"], together["array_tasks"]) == (5, -1, "1-2,4-5,8")
    assert (apart["elements"], apart["array_task"], apart["array_id"]) == (1, 3, together["job_id"])


def test_elements_are_addressed_by_exactly_their_tasks(queue: Queue, jobs: RowsByName) -> None:
    array, *running = (each["job_id"] for each in jobs("array"))
    split, apart = (each["job_id"] for each in jobs("split"))
    assert queue.addresses == {
        array: f"{array}_[2-9]",
        running[0]: f"{array}_0",
        running[1]: f"{array}_1",
        split: f"{split}_[1-2,4-5,8]",
        apart: f"{split}_3",
    }


def test_the_parts_of_a_heterogeneous_job_know_it(jobs: RowsByName) -> None:
    leader, other = jobs("het")
    assert leader["het_id"] == other["het_id"] == leader["job_id"]
    assert (leader["gpus"], other["gpus"]) == (1, 0)


def test_what_a_user_writes_forges_no_row(jobs: RowsByName) -> None:
    (hostile,) = jobs("hostile")
    assert (hostile["name"], hostile["comment"]) == (f"hostile {HOSTILE}", HOSTILE)


def test_what_decides_where_a_job_may_run_is_parsed(jobs: RowsByName) -> None:
    (found,) = jobs("partitions")
    assert (found["partition"], found["features"], found["nodes"]) == ("gpu,fast", "fast&nvlink", 2)
    assert jobs("reserved")[0]["reservation"] == "maintenance"


def test_dependencies_are_parsed(jobs: RowsByName) -> None:
    (dependent,) = jobs("dependent")
    parents = [jobs(name)[0]["job_id"] for name in ("no-gpu", "mixed", "split")]
    assert all(f":{parent}" in dependent["dependency"] for parent in parents)


def test_holds_are_parsed(jobs: RowsByName) -> None:
    assert jobs("typed")[0]["reason"] == "None"
    assert (jobs("per-job")[0]["reason"], jobs("per-job")[0]["priority"]) == ("JobHeldUser", 0)
    assert (jobs("held by")[0]["reason"], jobs("held by")[0]["priority"]) == ("JobHeldAdmin", 0)


def test_times_are_seconds_since_the_epoch_and_durations_are_seconds(
    jobs: RowsByName,
) -> None:
    (found,) = jobs("per-node")
    assert found["time_limit"] == 86_400 + 2 * 3_600 + 4 * 60  # Slurm rounds up to whole minutes
    assert found["end"] - found["start"] == found["time_limit"]
    assert 1.7e9 < found["submit"] <= found["eligible"] <= found["start"]
    assert np.isnan(jobs("no-gpu")[0]["time_limit"])


def test_a_job_that_waits_has_no_start_though_slurm_expects_one(jobs: RowsByName) -> None:
    (later,) = jobs("later")
    assert later["reason"] == "BeginTime"
    assert later["eligible"] > later["submit"]
    assert np.isnan(later["start"])
    assert np.isnan(later["end"])
    assert later["expected"] >= later["eligible"]
    assert np.isnan(jobs("per-node")[0]["expected"])


def test_exit_codes_of_endings_are_as_a_shell_has_them(jobs: RowsByName) -> None:
    ended = {name: jobs(name)[0] for name in ("completed", "failed", "killed", "cancelled")}
    assert [each["state"] for each in ended.values()] == ["COMPLETED", "FAILED", "FAILED", "CANCELLED"]
    assert [each["exit_code"] for each in ended.values()] == [0, 3, 137, 0]


def test_memory_is_in_mebibytes_in_all(jobs: RowsByName) -> None:
    assert jobs("no-gpu")[0]["memory"] == 4_500


def test_owners_are_parsed(jobs: RowsByName) -> None:
    (found,) = jobs("typed")
    assert (found["uid"], found["user"], found["account"], found["qos"]) == (5, "games", "vision", "normal")


def test_a_node_in_several_partitions_is_one_row(recorded: Callable[[str], str]) -> None:
    nodes = parse.nodes(recorded("sinfo"), SEPARATORS)
    assert nodes.name == ("n1", "n2", "n3", "n4", "n5")
    assert nodes.partitions[:3] == (frozenset({"gpu", "fast"}), frozenset({"gpu", "fast"}), frozenset({"gpu"}))
    assert nodes.features == (*[frozenset({"fast", "nvlink"})] * 2, frozenset({"slow"}), frozenset(), frozenset())
    assert nodes.state == (*[frozenset({"mixed"})] * 4, frozenset({"idle", "drain"}))


def test_the_gpus_of_a_node_are_counted_by_type(recorded: Callable[[str], str]) -> None:
    nodes = parse.nodes(recorded("sinfo"), SEPARATORS)
    assert nodes.gpus == ({"a100": 4}, {"a100": 4}, {"v100": 4}, {"": 4}, {})
    used = [sum(each.values()) for each in nodes.gpus_used]
    assert used == [3, 1, 2, 4, 0]
    assert nodes.gpus_used[0] == {"a100": 3}


def test_the_cpus_and_memory_of_a_node_are_parsed(recorded: Callable[[str], str]) -> None:
    nodes = parse.nodes(recorded("sinfo"), SEPARATORS)
    assert (nodes.cpus.tolist(), nodes.cpus_used.tolist()) == ([8] * 5, [2, 1, 2, 2, 0])
    assert (nodes.memory.tolist(), nodes.memory_used.tolist()) == ([4_000] * 5, [200, 100, 200, 200, 0])
    assert (nodes.memory_free > 0).all()
    assert (nodes.cpu_load > 0).all()


def test_reservations_are_parsed(recorded: Callable[[str], str]) -> None:
    maintenance, lesson = parse.reservations(recorded("reservations"))
    assert (maintenance.name, maintenance.nodes) == ("maintenance", frozenset({"n1", "n2", "n3"}))
    assert (maintenance.users, maintenance.accounts) == (frozenset({"games", "news"}), frozenset())
    assert maintenance.end - maintenance.start == 7_200
    assert (lesson.name, lesson.users, lesson.accounts) == ("class", frozenset(), frozenset({"vision", "language"}))


def test_the_site_is_parsed(recorded: Callable[[str], str], request: pytest.FixtureRequest) -> None:
    site = parse.site(recorded("config"))
    assert site.cluster.startswith("sandbox_")
    assert site.version.startswith(request.node.callspec.params["recorded"].removeprefix("slurm-"))


def test_the_accounting_tells_how_jobs_ended(recorded: Callable[[str], str]) -> None:
    endings = {ending.job_id: ending for ending in parse.endings(recorded("sacct"))}
    assert [ending.state for ending in endings.values()] == ["FAILED", "FAILED", "COMPLETED", "CANCELLED"]
    assert [ending.exit_code for ending in endings.values()] == [3, 137, 0, 0]
    assert endings[1].end >= endings[1].start > 1.7e9


# --- one field at a time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "gpus", "kind"),
    [
        ({"tres_per_node": "gres:gpu:a100:2"}, 4, "a100"),
        ({"tres_per_node": "gres/gpu:a100:2"}, 4, "a100"),
        ({"tres_per_node": "gres:gpu"}, 2, ""),
        ({"tres_per_node": "gres/gpu:3090:2"}, 4, "3090"),
        ({"tres_per_node": "gres/gpu:1,gres/craynetwork:9"}, 2, ""),
        ({"tres_per_node": "gres/shard:4"}, 0, ""),
        ({"tres_per_job": "gres/gpu:6"}, 6, ""),
        ({"tres_per_task": "gres/gpu:a100=2"}, 8, "a100"),
        ({"tres_per_task": "gres/gpu=2", "NumTasks": "4294967294"}, 2, ""),
        ({"tres_per_socket": "gres:gpu:1", "Sockets": "2"}, 4, ""),
        ({"tres_per_socket": "gres:gpu:1"}, 2, ""),
        ({"tres_per_job": "gres:gpu:4", "tres_per_node": "gres:gpu:2"}, 4, ""),
        ({"tres_alloc": "cpu=2,gres/gpu=6,gres/gpu:a100=2", "tres_per_job": "gres:gpu:6"}, 6, ""),
        ({"tres_alloc": "gres/gpu:a100=2,gres/gpu:v100=1"}, 3, ""),
        ({"tres_per_job": "gres:gpu:v100:2,gres:gpu:a100:3"}, 5, "a100,v100"),
        ({"tres_per_node": "gres:gpu:1g.10gb:2"}, 4, "1g.10gb"),
        ({"tres_alloc": "cpu=2,gres/gpumem=40G,gres/gpuutil=1", "tres_per_node": "gres/gpu:1"}, 2, ""),
    ],
)
def test_every_spelling_of_gpus_is_understood(fields: dict[str, str], gpus: int, kind: str) -> None:
    found = job(**fields)
    assert (found["gpus"], found["gpu_type"]) == (gpus, kind)


@pytest.mark.parametrize(
    ("given", "tracked", "gpus", "kind"),
    [
        ("gres:gpu:a100:1K", "gres/gpu=1024", 1024, "a100"),
        ("gres:gpu:1k", "gres/gpu=1024", 1024, ""),
        ("gres:gpu:a=b:1", "gres/gpu=1", 1, "a=b"),
        ("gres:gpu:a:b:2", "gres/gpu=2", 2, "a:b"),
        ("gres:gpu:a(b):1", "gres/gpu=1", 1, "a"),
        ("gres:gpu:-1", "gres/gpu=1", 1, "-1"),
        ("gres:gpu:a100:+2", "gres/gpu=2", 2, "a100"),
        ("gres:gpu:\n9:1", "gres/gpu=1", 1, "\n9"),
        ("gres:gpu:\u0663", "gres/gpu=1", 1, "\u0663"),
        ("gres:gpu:a100:0", "cpu=1", 0, ""),
        ("gres:gpu:18446744073709551614", "cpu=1", 2_000_000, ""),
        ("gres:gpu:9999999999", "gres/gpu=9999999999", 1_000_000, ""),
        (f"gres:gpu:{'9' * 5_000}", "cpu=1", 2, "9" * 128),
        ("gres:shard:99999999999999,gres:gpu", "cpu=1", 2, ""),
    ],
)
def test_what_a_user_asks_for_does_not_stop_the_reading(given: str, tracked: str, gpus: int, kind: str) -> None:
    found = job(tres_per_node=given, tres_alloc=tracked)  # all but a:b and the 5,000 digits are taken by sbatch --hold
    assert (found["gpus"], found["gpu_type"]) == (gpus, kind)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"tres_alloc": "cpu=1,gres/gpu=2,gres/gpu:a100=2"}, "a100"),
        ({"tres_alloc": "gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1"}, "a100,v100"),
        ({"tres_alloc": "gres/gpu=3,gres/gpu:a100=2"}, ""),  # the third is of a type that is not tracked
        ({"tres_alloc": "gres/gpu=2", "tres_per_node": "gres:gpu:a100:2"}, ""),
        ({"tres_alloc": "gres/gpu=2,gres/gpu:a100=2", "State": "PENDING"}, ""),
        ({"tres_alloc": "gres/gpu=2,gres/gpu:a100=2", "State": "COMPLETED"}, "a100"),
    ],
)
def test_the_type_that_a_job_holds_is_the_one_that_the_accounting_tracks(fields: dict[str, str], kind: str) -> None:
    assert job(**{"State": "RUNNING", "NodeList": "n1", **fields})["gpu_type_held"] == kind


@pytest.mark.parametrize(
    ("fields", "shards"),
    [
        ({"tres_per_node": "gres:shard:5"}, 5),
        ({"tres_per_node": "gres/shard:a100:2", "tres_alloc": "cpu=1,gres/shard=4"}, 2),
        ({"tres_per_task": "gres/shard=3"}, 3),
        ({"tres_per_node": "gres:gpu:2"}, 0),
    ],
)
def test_shards_are_read_and_are_no_gpus(fields: dict[str, str], shards: int) -> None:
    found = job(**fields)
    assert found["shards"] == shards
    assert found["gpus"] == (4 if not shards else 0)


@pytest.mark.parametrize(
    ("used", "gpus"),
    [
        ("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2),shard:0", {"a100": 2, "v100": 1}),
        ("gpu:a100:1(IDX:2),shard:a100:2(IDX:0-1)", {"a100": 3}),  # 22.05
        ("gpu:a100:0(IDX:N/A),shard:a100:1(IDX:3)", {"a100": 1}),
        ("gpu:a100:1(IDX:2),shard:a100:7(4/4,3/4,0/4,0/4)", {"a100": 3}),
        ("gpu:0,shard:3(0/4,3/4)", {"": 1}),
        ("gpu:1g.10gb:3(IDX:0-2),shard:0", {"1g.10gb": 3}),
    ],
)
def test_a_gpu_of_which_shards_are_in_use_is_in_use(
    recorded: Callable[[str], str], used: str, gpus: dict[str, int]
) -> None:
    record = recorded("sinfo").split(f"{SEPARATORS.record}\n")[0].split(SEPARATORS.field)
    record[NODE_FIELDS.index("GresUsed")] = used
    nodes = parse.nodes(SEPARATORS.field.join(record) + f"{SEPARATORS.record}\n", SEPARATORS)
    assert nodes.gpus_used == (gpus,)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93_784), ("02:03:04", 7_384), ("30:00", 1_800), ("UNLIMITED", None), ("Partition_Limit", None)],
)
def test_every_spelling_of_a_time_limit_is_understood(text: str, seconds: int | None) -> None:
    limit = job(TimeLimit=text)["time_limit"]
    assert np.isnan(limit) if seconds is None else limit == seconds


@pytest.mark.parametrize(("text", "code"), [("768", 3), ("9", 137), ("3:0", 3), ("0:15", 143), ("0", 0)])
def test_a_wait_status_is_understood_as_well_as_a_pair(text: str, code: int) -> None:
    assert job(exit_code=text)["exit_code"] == code


@pytest.mark.parametrize(
    ("tres", "mebibytes"), [("mem=2G", 2_048), ("mem=1.50G", 1_536), ("mem=512K", 0.5), ("mem=7", 7), ("cpu=1", 0)]
)
def test_every_unit_of_memory_is_understood(tres: str, mebibytes: float) -> None:
    assert job(tres_alloc=tres)["memory"] == mebibytes


def test_the_last_element_of_an_array_is_addressed_as_an_element() -> None:
    found = parse.queue(squeue({"ArrayTaskID": "9", "State": "RUNNING"}), SEPARATORS, NOW)
    assert found.addresses == {7: "7_9"}
    assert (found.rows.array_task.tolist(), found.rows.elements.tolist()) == ([9], [1])


def test_long_texts_are_cut_to_their_bound() -> None:
    found = job(Name="x" * 9_999, Comment="y" * 9_999)
    assert (len(found["name"]), len(found["comment"])) == (parse.TEXT_LENGTH, parse.COMMENT_LENGTH)


def test_an_empty_answer_is_an_empty_queue() -> None:
    assert len(parse.queue("", SEPARATORS, NOW).rows) == 0


def test_no_reservations_are_none() -> None:
    assert parse.reservations("No reservations in the system\n") == ()


# --- answers that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        squeue(JOB)[:-1],
        squeue(JOB)[:-9],
        squeue(JOB, JOB),
        squeue(JOB).replace(SEPARATORS.field, "", 1),
        squeue({"Name": f"x{SEPARATORS.field}y"}),
        "squeue: something else\n",
        *(squeue({name: "?"}) for name in JOB_FIELDS if name not in {
            "UserName", "Account", "QOS", "Partition", "State", "Reason", "Name", "Comment", "Dependency", "Feature",
            "Reservation", "NodeList", "Sockets", "tres-alloc", "tres-per-node", "tres-per-job", "tres-per-socket",
            "tres-per-task",
        }),
        *(squeue({name: ""}) for name in ("JobID", "UserID", "BatchFlag", "NumNodes", "PriorityLong", "TimeLimit")),
        squeue({"tres-alloc": "mem=much"}),
        *(squeue({name: "9" * 400}) for name in ("NumCPUs", "SubmitTime", "ArrayTaskID", "HetJobID", "exit_code")),
        squeue(*({"ArrayJobID": "6", "ArrayTaskID": task} for task in "12")),
        squeue({"ArrayJobID": "7", "ArrayTaskID": "1"}, {}),
        squeue({"TimeLimit": f"{'9' * 400}:00"}),
    ],
)  # fmt: skip
def test_a_queue_that_does_not_fit_fails_the_reading(text: str) -> None:
    with pytest.raises(ReadFailed):
        parse.queue(text, SEPARATORS, NOW)


@pytest.mark.parametrize(
    ("field", "value"),
    [("CPUsState", "1/2"), ("CPUsState", f"1/2/3/{'9' * 30}"), ("Memory", "4000+"), ("CPUsLoad", "?")],
)
def test_nodes_that_do_not_fit_fail_the_reading(recorded: Callable[[str], str], field: str, value: str) -> None:
    record = recorded("sinfo").split(f"{SEPARATORS.record}\n")[0].split(SEPARATORS.field)
    record[NODE_FIELDS.index(field)] = value
    with pytest.raises(ReadFailed, match=field):
        parse.nodes(SEPARATORS.field.join(record) + f"{SEPARATORS.record}\n", SEPARATORS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ReservationName=a Nodes=n1\n",
        "something else\n",
        f"ReservationName=a Nodes=n1 Users=a Accounts=a StartTime={'9' * 400} EndTime=1\n",
    ],
)
def test_reservations_that_do_not_fit_fail_the_reading(text: str) -> None:
    with pytest.raises(ReadFailed):
        parse.reservations(text)


@pytest.mark.parametrize("setting", ["ClusterName", "SLURM_VERSION", "BOOT_TIME"])
def test_a_configuration_that_does_not_fit_fails_the_reading(recorded: Callable[[str], str], setting: str) -> None:
    with pytest.raises(ReadFailed, match=setting):
        parse.site(recorded("config").replace(setting, "Else"))


@pytest.mark.parametrize(
    "text",
    [
        "1|FAILED|1|2|0:0\n",
        "1|FAILED|1|soon|0:0|00:00:00\n",
        "1|FAILED|1|2|x|00:00:00\n",
        f"1|FAILED|1|{'9' * 400}|0:0|00:00:00\n",
        "1|FAILED|1|2|0:0|long\n",
    ],
)
def test_an_accounting_that_does_not_fit_fails_the_reading(text: str) -> None:
    with pytest.raises(ReadFailed):
        parse.endings(text)


@pytest.mark.parametrize(("text", "seconds"), [("00:00:00", 0.0), ("1-00:01:00", 86_460.0), ("INVALID", 0.0)])
def test_the_accounting_tells_for_how_long_a_job_was_suspended(text: str, seconds: float) -> None:
    [ending] = parse.endings(f"5|COMPLETED|1795249517|1795349517|0:0|{text}\n")
    assert ending.suspended == seconds


@pytest.mark.parametrize(
    ("state", "used", "seconds"),
    [
        ("RUNNING", "1:40", 0.0),
        ("RUNNING", "1:43", 0.0),  # squeue printed it 3 s after it was started
        ("RUNNING", "0:40", 60.0),
        ("SUSPENDED", "0:10", 90.0),
        ("CONFIGURING", "1:40", 0.0),
        ("COMPLETED", "0:20", 30.0),
        ("COMPLETING", "0:50", 0.0),
        ("RUNNING", "INVALID", 0.0),
        ("PENDING", "0:00", 0.0),
    ],
)
def test_the_time_that_a_job_has_not_used_since_its_start_it_was_suspended(
    state: str, used: str, seconds: float
) -> None:
    """It started 100 s ago, and ended after 50 s where it has ended."""
    ends = NOW - 50.0 if state.startswith("COMPLET") else NOW + 3600.0
    given = {"StartTime": f"{NOW - 100.0:.0f}", "EndTime": f"{ends:.0f}", "TimeUsed": used}
    assert job(State=state, **given)["suspended"] == seconds


@pytest.mark.parametrize("text", ["7 1 0.1 0.1\n", f"7 {'9' * 5000} 0.1\n", f"{'9' * 5000} 1 0.1\n", "7 1 \n"])
def test_site_factors_that_do_not_fit_fail_the_reading(text: str) -> None:
    with pytest.raises(ReadFailed):
        parse.site_factors(text)


def test_addresses_of_what_is_no_job_fail_the_reading() -> None:
    record = SEPARATORS.field.join(["no job", "7_1", *["0"] * (len(RESOURCE_REQUEST_FIELDS) - 2)])
    with pytest.raises(ReadFailed, match="JobID"):
        parse.addresses(f"{record}{SEPARATORS.record}\n", SEPARATORS)


def test_jobs_that_the_accounting_has_not_seen_end_are_no_endings() -> None:
    assert (
        parse.endings("5|RUNNING|1795249517|Unknown|0:0|00:00:00\n7_[2-9]|PENDING|Unknown|Unknown|0:0|00:00:00\n") == ()
    )


# --- what jobs request ------------------------------------------------------------------------------------------------

REQUEST: Mapping[str, str] = {
    "JobID": "7", "JobArrayID": "7", "NumNodes": "2", "NumCPUs": "8", "HetJobID": "0",
    "tres-alloc": "cpu=8,mem=800M,node=2,gres/gpu=4", "Reservation": "(null)",
    "tres-per-node": "gres:gpu:2", "tres-per-job": "N/A", "tres-per-socket": "N/A",
    "tres-per-task": "N/A", "NumTasks": "2", "NTPerNode": "0", "cpus-per-task": "4", "MinCPUs": "4",
    "MinMemory": "100M",
    "mem-per-tres": "N/A", "cpus-per-tres": "N/A", "Requeue": "1", "TimeLimit": "1:00:00", "Nice": "0",
    "State": "PENDING",
}  # fmt: skip


SHOWN = (
    "JobId=7 JobName=train UserId=ada(1000) Comment=x NumNodes=1-2 NumCPUs=8 NumTasks=2 CPUs/Task=4 "
    "ReqB:S:C:T=0:0:*:* MinCPUsNode=4 MinMemoryCPU=100M MinTmpDiskNode=0 NtasksPerTRES=2 \n"
)


def request(constraints: str = "7  \n", shown: str = SHOWN, **fields: str) -> ResourceRequest:
    text = (
        SEPARATORS.field.join({**REQUEST, **fields}[name] for name in RESOURCE_REQUEST_FIELDS)
        + SEPARATORS.record
        + "\n"
    )
    return parse.resource_requests(text, constraints, {7: shown}, SEPARATORS)[7]


def test_what_a_job_requests_and_by_which_options_is_parsed() -> None:
    found = request()
    assert (found.nodes, found.gpus, found.cpus, found.memory, found.gres) == (2, 4, 8, 800.0, "gres:gpu:2")
    assert (found.tasks, found.tasks_per_node, found.cpus_per_task, found.requeue, found.memory_requested) == (
        2,
        0,
        4,
        True,
        True,
    )
    assert (found.reservation, found.excluded_nodes, found.required_nodes, found.gres_per_job) == ("", "", "", "")
    assert (found.max_nodes, found.memory_per_cpu, found.tasks_per_gpu) == (2, True, 2)


@pytest.mark.parametrize("form", ["job", "socket", "task"])
def test_gpus_not_requested_per_node_are_recognised(form: str) -> None:
    assert getattr(request(**{f"tres-per-{form}": "gres/gpu:2"}), f"gres_per_{form}") == "gres/gpu:2"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (SHOWN.replace("1-2", "1"), (0, True, 2)),
        (SHOWN.replace("MinMemoryCPU=100M", "MinMemoryNode=0").replace("NtasksPerTRES=2", ""), (2, False, 0)),
        (SHOWN.replace("=2 \n", ":3"), (2, True, 3)),
        (SHOWN.replace("MinMemoryCPU=100M ", ""), (2, False, 2)),
    ],
)
def test_the_most_nodes_and_how_memory_was_requested_are_what_scontrol_shows(
    shown: str, expected: tuple[int, bool, int]
) -> None:
    found = request(shown=shown)
    assert (found.max_nodes, found.memory_per_cpu, found.tasks_per_gpu) == expected


@pytest.mark.parametrize(
    "shown",
    [
        "",
        "slurm_load_jobs error: Invalid job id specified",
        SHOWN.replace("train", "NumNodes=1-9 NumCPUs=1 MinMemoryCPU=1"),
        SHOWN.replace("Comment=x", "Comment=NumNodes=9"),
        SHOWN + " Comment=NtasksPerTRES=9",
        SHOWN.replace("train", "MinMemoryNode=1"),
        f"{SHOWN}\n{SHOWN}",
    ],
)
def test_a_request_that_its_user_may_have_forged_is_not_known(shown: str) -> None:
    with pytest.raises(KeyError):
        request(shown=shown)


def test_jobs_are_shown_one_by_one_also_elements_of_an_array() -> None:
    rows = [
        {**REQUEST, "JobID": job, "JobArrayID": address}
        for job, address in (("7", "7"), ("9", "8_1"), ("8", "8_[2-4]"), ("6", "5+1"))
    ]
    lines = (SEPARATORS.field.join(row[name] for name in RESOURCE_REQUEST_FIELDS) + SEPARATORS.record for row in rows)
    assert parse.addresses("\n".join(lines) + "\n", SEPARATORS) == {7: "7", 9: "8_1", 6: "5+1"}


def test_memory_and_cpus_that_follow_the_gpus_are_recognised() -> None:
    assert not request(**{"mem-per-tres": "gres:gpu:50", "MinMemory": "0"}).memory_requested
    per_gpu = request(**{"cpus-per-tres": "gres:gpu:2"})
    assert (per_gpu.cpus_follow_gpus, per_gpu.cpus_per_gpu) == (True, 2)


def test_excluded_and_required_nodes_are_host_lists_or_empty() -> None:
    assert (request("7 n[1-2] n3\n").excluded_nodes, request("7 n[1-2] n3\n").required_nodes) == ("n[1-2]", "n3")
    assert request("8 n1 n2\n").excluded_nodes == ""
    assert request("7 (null) (null)\n").required_nodes == ""


def test_numbers_that_slurm_has_not_set_are_none() -> None:
    assert request(NTPerNode="65534").tasks_per_node == 0
    assert request(NumTasks="4294967294").tasks == 0


def test_an_answer_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ReadFailed, match="job 7"):
        request(NumNodes="many")


def test_site_factors_are_read_as_sprio_lists_them() -> None:
    text = "          7         62   0.00000026194980\n12_[0-2]    -31 0.00000022446406\n"
    assert parse.site_factors(text) == {7: 62, 12: -31}


def test_a_job_in_two_partitions_has_one_site_factor_and_one_whose_priority_is_pinned_shows_none() -> None:
    text = "14 88 0.00000011689707\n14 88 0.00000011689707\n9 0 5000.00000000000000\n15 0 1.00000000000000\n"
    assert parse.site_factors(text) == {14: 88}


@pytest.mark.parametrize("text", ["7\n", "7 62\n", "7 62 5\n", "sprio: error\n", "7 6.5 0.1\n"])
def test_an_answer_of_sprio_that_does_not_fit_is_no_answer(text: str) -> None:
    with pytest.raises(ReadFailed, match="sprio answers"):
        parse.site_factors(text)


def test_a_queue_that_is_read_after_others_is_as_one_that_is_read_alone() -> None:
    """Jobs come, go, change and change place."""
    random = np.random.default_rng(5)
    jobs = {
        n: {"JobID": str(n), "ArrayJobID": str(n), "Name": f"job\n{n}" * (n % 3 + 1), "NumNodes": "1", "NumTasks": "1"}
        for n in range(1, 30)
    }
    array = [{"JobID": "50", "ArrayJobID": "50", "ArrayTaskID": str(task)} for task in (1, 2, 5)]
    queues = parse.QueueReader(SEPARATORS)
    for call in range(10):
        for n in random.choice(list(jobs), 4, replace=False).tolist():
            changes = (
                {"PriorityLong": str(call)},
                {"State": "RUNNING", "StartTime": "1795249600"},
                {"Comment": f"{call}"},
            )
            jobs[n] |= changes[call % 3]
        there = random.permutation([n for n in jobs if random.random() < 0.8]).tolist()
        text = squeue(*(jobs[n] for n in there), *(array if call % 2 else array[:2]))
        again = queues.read(text, NOW)
        alone = parse.queue(text, SEPARATORS, NOW)
        assert again.addresses == alone.addresses
        for name in JobRows.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(again.rows, name), getattr(alone.rows, name), err_msg=name)


def test_an_answer_that_does_not_fit_leaves_what_is_known_of_the_queue() -> None:
    queues = parse.QueueReader(SEPARATORS)
    queues.read(squeue(JOB), NOW)
    with pytest.raises(ReadFailed):
        queues.read(squeue(JOB, {"JobID": "8", "NumNodes": "?"}), NOW)
    assert queues.read(squeue(JOB, {"JobID": "9", "ArrayJobID": "9"}), NOW).rows.job_id.tolist() == [7, 9]
