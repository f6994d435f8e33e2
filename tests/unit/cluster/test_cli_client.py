"""The client against programs that replace Slurm's: they hang, die, complain, and record what they received."""

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.snapshot import JobKey
from slurmplug.cluster import cli_client
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits, ResourceUse
from slurmplug.cluster.port import Command, Outcome
from slurmplug.cluster.site_client import SiteClient
from slurmplug.errors import ReadFailed

Program = Callable[[str, str], None]

COMPLAIN_ABOUT_MARKS = 'case "$line" in done*) echo "invalid keyword: $line" >&2 ;; '
"""scontrol's loop: what it prints about a word that it does not know."""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    def write(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\nhere={tmp_path}\n{body}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def client(tmp_path: Path) -> CliClient:
    return CliClient(Path("/nowhere/slurm.conf"), tmp_path, 20.0)


@pytest.fixture
def impatient(tmp_path: Path) -> CliClient:
    return CliClient(Path("/nowhere/slurm.conf"), tmp_path, 1.0)


def scontrol(program: Program, answers: str) -> None:
    """An scontrol that records its input and answers by `answers`, branches of a shell's `case`."""
    program(
        "scontrol", f'while read -r line; do echo "$line" >>$here/received; {COMPLAIN_ABOUT_MARKS} {answers} esac; done'
    )


def received(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "received").read_text().splitlines()
    return [line for line in lines if not line.startswith("done")]


def update(job_id: int, **fields: str) -> Command:
    return Command(f"u{job_id}", "update", JobKey("c", job_id, 0), fields or {"SiteFactor": "5"})


def write(client: CliClient, *commands: Command) -> list[Outcome]:
    return client.write(commands, [str(command.job.job_id) for command in commands])


def signal(job_id: int, **fields: str) -> Command:
    return Command(f"s{job_id}", "signal", JobKey("c", job_id, 0), fields)


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_client_that_hangs_fails_the_reading(impatient: CliClient, program: Program) -> None:
    program("squeue", "exec sleep 60")
    with pytest.raises(ReadFailed, match=r"squeue did not answer within 1 s"):
        impatient.queue()


def test_a_client_that_is_missing_fails_the_reading_and_says_what_to_set(client: CliClient) -> None:
    with pytest.raises(ReadFailed, match=r"squeue cannot be run: .*slurm\.bin"):
        client.queue()


def test_a_client_that_fails_without_output_is_no_empty_queue(client: CliClient, program: Program) -> None:
    program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ReadFailed, match="Unable to contact"):
        client.queue()


def test_a_client_that_does_not_know_a_column_fails_the_reading_though_it_exits_0(
    client: CliClient, program: Program
) -> None:
    program("squeue", "echo 'squeue: error: Invalid job format specification: Sockets' >&2")
    with pytest.raises(ReadFailed, match="Sockets"):
        client.queue()


def test_no_nodes_at_all_fail_the_reading(client: CliClient, program: Program) -> None:
    program("sinfo", ":")
    with pytest.raises(ReadFailed, match="Operator"):
        client.nodes()


def test_other_output_on_standard_error_is_no_failure(client: CliClient, program: Program) -> None:
    program("squeue", "echo 'squeue: a plugin says hello' >&2")
    assert len(client.queue().rows) == 0


def test_separators_on_a_command_line_are_drawn_for_every_call(
    client: CliClient, program: Program, tmp_path: Path
) -> None:
    program("sinfo", 'echo "$*" >>$here/columns')
    for _ in range(2):
        with pytest.raises(ReadFailed):
            client.nodes()
    first, second = (line.rpartition(":")[2] for line in (tmp_path / "columns").read_text().splitlines())
    assert first != second
    assert first[0].isalpha()


def test_the_separators_of_the_queue_are_on_no_command_line_and_differ_between_clients(
    client: CliClient, program: Program, tmp_path: Path
) -> None:
    program("squeue", 'echo "$*" >>$here/seen; echo "$SQUEUE_FORMAT2" >>$here/format')
    for one in (client, client, CliClient(None, tmp_path, 20.0)):
        one.queue()
    first, second, other = (line.rpartition(":")[2] for line in (tmp_path / "format").read_text().splitlines())
    assert first == second != other
    assert first[0].isalpha()
    assert first not in (tmp_path / "seen").read_text()


def test_the_environment_changes_nothing_that_the_clients_print(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    for name in ("SQUEUE_FORMAT", "SQUEUE_STATES", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SINFO_SORT", "SACCT_FORMAT"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    program("squeue", "env >$here/env")
    CliClient(tmp_path / "slurm.conf", tmp_path, 20.0).queue()
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert "mine" not in env.values()
    assert (env["LC_ALL"], env["TZ"], env["SLURM_TIME_FORMAT"]) == ("C", "UTC", "%s")
    assert env["SLURM_CONF"] == str(tmp_path / "slurm.conf")


def test_the_slurm_conf_of_the_environment_holds_where_none_is_set(
    monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/from/the/environment")
    program("squeue", "echo $SLURM_CONF >$here/conf")
    CliClient(None, tmp_path, 20.0).queue()
    assert (tmp_path / "conf").read_text() == "/from/the/environment\n"


def test_only_the_head_of_a_script_is_kept(client: CliClient, program: Program) -> None:
    program("scontrol", "head -c 1000000 /dev/zero")
    assert client.script(7) == bytes(cli_client.SCRIPT_BYTES)


def test_a_script_is_read_whatever_a_plugin_prints_on_standard_error(client: CliClient, program: Program) -> None:
    program("scontrol", "echo 'scontrol: error: a plugin is missing' >&2; echo '#!/bin/sh'")
    assert client.script(7) == b"#!/bin/sh\n"


def test_a_job_without_a_script_has_an_empty_one(client: CliClient, program: Program) -> None:
    program("scontrol", "echo 'job script retrieval failed: Job script not specified' >&2")
    assert client.script(7) == b""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("exit 0", "no answer, exit status 0"),
        ("echo '#!/bin/sh'; kill -9 $$", "no answer, exit status -9"),
        ("echo '#!/bin/sh'; echo 'No space left on device' >&2; exit 1", "No space left"),
        ("echo 'job script retrieval failed: Invalid job id specified' >&2", "Invalid job id"),
        ("echo 'job script retrieval failed: Unable to contact slurm controller' >&2", "Unable to contact"),
    ],
)
def test_an_answer_that_does_not_say_so_is_no_job_without_a_script(
    client: CliClient, program: Program, body: str, message: str
) -> None:
    program("scontrol", body)
    with pytest.raises(ReadFailed, match=message):
        client.script(7)


def test_a_script_that_may_not_be_read_fails_the_reading(client: CliClient, program: Program) -> None:
    program("scontrol", "echo 'job script retrieval failed: Access/permission denied' >&2")
    with pytest.raises(ReadFailed, match="denied"):
        client.script(7)


# --- writing --------------------------------------------------------------------------------------------------------


def test_every_result_is_matched_to_its_command(client: CliClient, program: Program) -> None:
    scontrol(program, "*=2*) echo 'Job has already finished for job 2' >&2 ;;")
    assert write(client, update(1), update(2), update(3)) == [
        Outcome("u1", "done"),
        Outcome("u2", "refused", "Job has already finished for job 2"),
        Outcome("u3", "done"),
    ]


def test_several_complaints_belong_to_one_command(client: CliClient, program: Program) -> None:
    scontrol(program, "*=1*) echo one >&2; echo two >&2 ;;")
    assert [outcome.message for outcome in write(client, update(1), update(2))] == ["one\ntwo", ""]


def test_more_commands_than_a_pipe_holds_reach_an_scontrol_that_is_slow(client: CliClient, program: Program) -> None:
    """A pipe holds 64 KiB, and it is looked several times a second whether the daemon is to end."""
    program("scontrol", "sleep 0.5\nexec sed -n '/^done/s/^/invalid keyword: /p' >&2")
    outcomes = write(client, *(update(job) for job in range(3_000)))
    assert {outcome.status for outcome in outcomes} == {"done"}


def test_where_scontrol_hangs_what_came_before_is_known_and_the_rest_is_not(
    impatient: CliClient, program: Program
) -> None:
    scontrol(program, "*=2*) exec sleep 60 ;;")
    assert [outcome.status for outcome in write(impatient, update(1), update(2), update(3))] == [
        "done",
        "unknown",
        "unknown",
    ]


def test_where_scontrol_dies_the_rest_is_unknown_with_its_last_output(client: CliClient, program: Program) -> None:
    scontrol(program, "*=2*) echo 'scontrol: fatal: no configuration' >&2; exit 1 ;;")
    first, second, third = write(client, update(1), update(2), update(3))
    assert first.status == "done"
    assert (second.status, second.message) == ("unknown", "scontrol: fatal: no configuration")
    assert third.status == "unknown"


def test_where_scontrol_cannot_be_run_nothing_was_done(client: CliClient) -> None:
    (outcome,) = write(client, update(1))
    assert outcome.status == "refused"
    assert "scontrol cannot be run" in outcome.message


@pytest.mark.parametrize(
    "message",
    [
        "Unable to contact slurm controller (connect failure)",
        "Unexpected message received for job 1",
        "Socket timed out on send/recv operation",
        "Slurm backup controller in standby mode",
        "Zero Bytes were transmitted or received",
    ],
)
def test_without_an_answer_the_outcome_is_unknown(client: CliClient, program: Program, message: str) -> None:
    scontrol(program, f"*=1*) echo '{message}' >&2 ;;")
    assert write(client, update(1)) == [Outcome("u1", "unknown", message)]


def test_an_update_that_slurm_puts_off_was_not_refused(client: CliClient, program: Program) -> None:
    message = "Job update not available right now, the DB index is being set, try again in a bit for job 1"
    scontrol(program, f"*=1*) echo '{message}' >&2 ;;")
    assert write(client, update(1)) == [Outcome("u1", "put off", message)]


@pytest.mark.parametrize(
    ("complaint", "status"),
    [
        ("7_2: Job has already finished\n7_3-9: No error", "done"),
        ("7_2-4: Job has already finished", "done"),
        ("7_2-9: Job has already finished", "refused"),
        ("7_2-4: Job has already finished\n7_5-9: Access/permission denied", "refused"),
        ("7_2,4,6,8,10...: Job has already finished", "unknown"),
        ("7_2,4,6,8,10...: Job has already finished\n7_3,5,7,9,1...: No error", "done"),
        ("Invalid job id specified for job 7", "refused"),
    ],
)
def test_elements_that_ended_meanwhile_do_not_refuse_the_others(
    client: CliClient, program: Program, complaint: str, status: str
) -> None:
    scontrol(program, f"*=7*) echo '{complaint}' >&2 ;;")
    assert [outcome.status for outcome in client.write([update(7)], ["7_[2-9]"])] == [status]


def test_updates_and_requeues_are_sent_in_order_and_unchanged(
    client: CliClient, program: Program, tmp_path: Path
) -> None:
    scontrol(program, "")
    requeue = Command("r", "requeue", JobKey("c", 9, 0))
    fields = {"Gres": "gpu:a100:4", "StartTime": "now", "ReservationName": "slurmplug-8"}
    client.write([update(7), update(8, **fields), requeue], ["7_[2-9]", "8", "9"])
    assert received(tmp_path) == [
        "update JobId=7_[2-9] SiteFactor=5",
        "update JobId=8 Gres=gpu:a100:4 StartTime=now ReservationName=slurmplug-8",
        "requeue 9",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"SiteFactor": "5\nshutdown"},
        {"SiteFactor": "5 Priority=9"},
        {"SiteFactor": "5\n"},
        {"SiteFactor": ""},
        {"SiteFactor": "five"},
        {"SiteFactor": "٥"},
        {"Priority": "-1"},
        {"Gres": "gpu:4;exit"},
        {"Gres": "gpu:4\trequeue"},
        {"StartTime": "now+1hour"},
        {"ReservationName": "a b"},
        {"ExcNodeList": "n1\x00"},
        {"Comment": "x"},
        {"AdminComment": "x"},
        {"SiteFactor=1 Priority": "5"},
        {"Gres": "x" * 10_000},
    ],
)
def test_a_value_that_is_not_valid_is_refused_and_never_told(
    client: CliClient, program: Program, tmp_path: Path, fields: dict[str, str]
) -> None:
    scontrol(program, "")
    outcomes = write(client, update(1), update(2, **fields), update(3))
    assert [outcome.status for outcome in outcomes] == ["done", "refused", "done"]
    assert received(tmp_path) == ["update JobId=1 SiteFactor=5", "update JobId=3 SiteFactor=5"]


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (signal(7, signal="USR1", to="batch"), "--verbose --signal=USR1 --batch 7"),
        (signal(7, signal="USR1", to="steps"), "--verbose --signal=USR1 7"),
        (signal(7, signal="12", to="full"), "--verbose --signal=12 --full 7"),
        (Command("c", "cancel", JobKey("c", 7, 0)), "--verbose 7"),
    ],
)
def test_a_signal_goes_where_it_was_declared_to_go(
    client: CliClient, program: Program, tmp_path: Path, command: Command, argv: str
) -> None:
    program("scancel", 'echo "$*" >$here/received')
    assert client.signal([command], ["7"]) == [Outcome(command.id, "done")]
    assert received(tmp_path) == [argv]


@pytest.mark.parametrize(
    "fields",
    [{}, {"signal": "USR1"}, {"signal": "USR1", "to": "all"}, {"signal": "USR1 --user=root", "to": "batch"}],
)
def test_a_signal_that_is_not_valid_is_refused(
    client: CliClient, program: Program, tmp_path: Path, fields: dict[str, str]
) -> None:
    program("scancel", 'echo "$*" >$here/received')
    assert [outcome.status for outcome in client.signal([signal(7, **fields)], ["7"])] == ["refused"]
    assert not (tmp_path / "received").exists()


def test_a_signal_that_hangs_is_unknown_and_keeps_no_other_waiting(impatient: CliClient, program: Program) -> None:
    program(
        "scancel", 'case "$*" in *" 7") exec sleep 60 ;; *" 8") echo "scancel: error: no such job" >&2; exit 1 ;; esac'
    )
    commands = [signal(job_id, signal="USR1", to="batch") for job_id in (7, 8, 9)]
    outcomes = impatient.signal(commands, ["7", "8", "9"])
    assert [outcome.status for outcome in outcomes] == ["unknown", "refused", "done"]


def test_a_scancel_that_dies_has_done_nothing(client: CliClient, program: Program) -> None:
    program("scancel", "echo 'scancel: Terminating job 7' >&2; echo 'scancel: fatal: no configuration' >&2; exit 1")
    (outcome,) = client.signal([Command("c", "cancel", JobKey("c", 7, 0))], ["7"])
    assert (outcome.status, outcome.message) == ("refused", "scancel: fatal: no configuration")


# --- what operations say and ask ------------------------------------------------------------------------------------


def command(verb: str, **fields: str) -> Command:
    return Command(f"{verb}-7", verb, JobKey("c", 7, 0), fields)  # type: ignore[arg-type]


def test_holds_and_reservations_are_told_as_slurm_wants_them(
    client: CliClient, program: Program, tmp_path: Path
) -> None:
    scontrol(program, "")
    place = {"name": "slurmplug-7", "nodes": "n1,n2", "user": "ada", "seconds": "961"}
    commands = [
        command("hold"),
        command("release"),
        command("reserve", **place),
        command("unreserve", name="slurmplug-7"),
    ]
    assert [each.status for each in client.write(commands, ["7"] * 4)] == ["done"] * 4
    assert received(tmp_path) == [
        "hold 7",
        "release 7",
        "create reservation ReservationName=slurmplug-7 Nodes=n1,n2 StartTime=now Duration=17 Users=ada "
        "Flags=IGNORE_JOBS",
        "delete ReservationName=slurmplug-7",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a b"}, {"nodes": "n1 Flags=MAINT"}, {"user": "ada\nshutdown"}, {"seconds": "-1"}, {"flags": "MAINT"},
    ],
)  # fmt: skip
def test_a_reservation_that_could_say_more_than_it_should_is_not_told(
    client: CliClient, program: Program, tmp_path: Path, fields: dict[str, str]
) -> None:
    scontrol(program, "")
    place = {"name": "slurmplug-7", "nodes": "n1", "user": "ada", "seconds": "60"}
    [outcome] = client.write([command("reserve", **{**place, **fields})], ["7"])
    assert outcome.status == "refused"
    assert not (tmp_path / "received").exists()


def test_where_there_is_no_accounting_there_are_only_the_limits_of_partitions(
    client: CliClient, program: Program
) -> None:
    program("sacctmgr", "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1")
    program("scontrol", "echo 'PartitionName=gpu QoS=N/A MaxTime=1-00:00:00 OverSubscribe=NO'")
    assert client.limits() == Limits(partition_wall={"gpu": 86_400.0})


def test_partitions_whose_jobs_get_whole_nodes_are_among_the_limits(client: CliClient, program: Program) -> None:
    program("sacctmgr", "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1")
    shown = (
        "a OverSubscribe=EXCLUSIVE",
        "b OverSubscribe=FORCE:1",
        "c OverSubscribe=NO Exclusive=NODE",
        "d Exclusive=NO",
    )
    program("scontrol", "; ".join(f"echo 'PartitionName={each}'" for each in shown))
    assert client.limits().whole_nodes == {"a", "c"}


@pytest.mark.parametrize("enforced", ["associations,limits,qos", "safe", "all", "none", "associations"])
def test_limits_of_qos_and_associations_are_those_that_slurm_enforces(
    enforced: str, client: CliClient, program: Program
) -> None:
    program(
        "scontrol", f"printf '%s\\n' '{CONFIG}' 'AccountingStorageEnforce = {enforced}' 'PartitionName=gpu QoS=few'"
    )
    program(
        "sacctmgr",
        "case \"$*\" in\n*' qos '*) echo 'few|||gres/gpu=2|||||3|';;\n*onlydefaults*) echo 'ada|lab';;\n"
        "*) echo 'lab||||||root|4||few';;\nesac",
    )
    found = client.limits()
    assert found.partition_qos == {"gpu": "few"}
    if enforced in ("none", "associations"):
        assert (found.qos, found.assocs, found.default_account) == ({}, {}, {})
        return
    assert found.qos == {"few": QosLimits(user={"gres/gpu": 2.0}, account={JOBS: 3.0})}
    assert found.assocs == {Assoc("lab", "", ""): AssocLimits({JOBS: 4.0}, parent="root", default_qos="few")}
    assert found.of_new_job("ada", "", "", "gpu") == ResourceUse("ada", "lab", "few", "gpu", {})
    assert found.of_new_job("bob", "x", "", "gpu").qos == "normal"
    assert found.of_new_job("bob", "lab", "high", "gpu").qos == "high"


def test_limits_that_cannot_be_read_are_not_taken_for_none(client: CliClient, program: Program) -> None:
    program("sacctmgr", "echo 'Connection refused' >&2; exit 1")
    program("scontrol", ":")
    with pytest.raises(ReadFailed, match="refused"):
        client.limits()


CONFIG = """\
Configuration data as of 1700000000
BOOT_TIME               = 1699999999
ClusterName             = c
PriorityType            = priority/multifactor
SLURM_VERSION           = 25.11.7
"""


@pytest.mark.parametrize("down", ["Slurmctld(primary) at ctl is DOWN", "Slurmctld(backup1) at ctl2 is DOWN"])
def test_a_controller_that_answers_no_ping_does_not_keep_the_settings_from_being_read(
    down: str, program: Program, client: CliClient
) -> None:
    program("scontrol", f"cat <<END\n{CONFIG}\n{down}\nEND\nexit 1")
    assert client.site().booted == 1_699_999_999.0
    assert SiteClient(Path("/nowhere/slurm.conf"), client._folder, 20.0).slurm_conf().values["ClusterName"] == "c"


def test_settings_that_end_before_their_end_are_not_read(program: Program, client: CliClient) -> None:
    program("scontrol", f"cat <<END\n{CONFIG}END\necho Unable to contact slurm controller >&2\nexit 1")
    with pytest.raises(ReadFailed, match="scontrol exits 1: Unable to contact slurm controller"):
        client.site()
