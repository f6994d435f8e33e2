"""evaluate: files and the ledger in, tables out; what cannot be used is refused with its place."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmplug.errors import DataError
from slurmplug.learning import dataset_files
from tests.ledgers import Site, run

HEADING = "job,submit,wait,run,p,rtime,user,group,exe,queue,part\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def written(name: str, content: str) -> Path:
        path = tmp_path / name
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(content.encode()))
        else:
            path.write_text(content)
        return path

    return written


def curve_lines(n: int, points: int = 16, **more: Any) -> str:
    random = np.random.default_rng(0)
    x = np.arange(1.0, points + 1)
    values = [(0.6 + 0.3 * random.random() - 0.4 / x).tolist() for _ in range(n)]
    return "".join(json.dumps({"val_acc": value, "loss": (1 / x + 0.1).tolist(), **more}) + "\n" for value in values)


def scores(*arguments: str) -> Any:
    result = run("evaluate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def refused(*arguments: str) -> str:
    result = run("evaluate", *arguments)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return result.output


class TestTables:
    def test_curves_in_percent_are_read_as_shares_beside_others_of_their_group(
        self, write: Callable[[str, str], Path]
    ) -> None:
        lines = curve_lines(4, group="a")
        percent = [json.loads(line) for line in curve_lines(4, group="b").splitlines()]
        for row in percent:
            row["val_acc"] = [100 * value for value in row["val_acc"]]
        percent[0]["val_acc"] = [value / 100 for value in percent[0]["val_acc"]]
        mixed = write("c.jsonl", lines + "".join(json.dumps(row) + "\n" for row in percent))
        read = [run.values for run in dataset_files.read_accuracy_curves([mixed])]
        np.testing.assert_allclose(read[5:], read[1:4])
        np.testing.assert_allclose(read[4], read[0] / 100)

    def test_run_times_of_whatever_is_simulated(self, write: Callable[[str, str], Path]) -> None:
        rows = [f"{n}|u{n % 3}|2026-03-01T10:{n:02}:00|{300 + 100 * (n % 3)}|01:00:00|gres/gpu=4" for n in range(60)]
        path = write("sacct.txt", "\n".join(["JobID|User|Submit|ElapsedRaw|Timelimit|AllocTRES", *rows]) + "\n")
        for name in (str(path), f"sacct:{path}"):
            [(_, table)] = scores("runtime", name).items()
            assert {row["method"]: row["items"] for row in table} == dict.fromkeys(
                ("stack", "svr", "request", "last two"), 60
            )

    def test_curves_with_a_history_of_their_own(self, write: Callable[[str, str], Path]) -> None:
        tested, history = write("a.jsonl.gz", curve_lines(6)), write("b.jsonl", curve_lines(8))
        (lines,) = scores("curves", str(tested), "--history", str(history), "--observe", "0.5").values()
        assert {(line["part"], line["method"]) for line in lines} == {
            (part, method)
            for part in ("with history", "cold")
            for method in ("learning curve", "last value", "power law")
        }
        assert all(line["items"] == 6 for line in lines)
        assert next(line for line in lines if line["method"] == "last value" and line["part"] == "cold")["ms"] is None

    def test_losses_by_their_algorithm(self, write: Callable[[str, str], Path]) -> None:
        tables = scores("loss", str(write("a.jsonl", curve_lines(2, 40, algo="LogReg"))))
        assert list(tables) == ["loss, 1 iteration ahead", "loss, 5 iterations ahead", "loss, 10 iterations ahead"]
        lines = tables["loss, 10 iterations ahead"]
        assert {line["part"] for line in lines} == {"LogReg", "convex kinds", "all kinds"}
        assert {line["method"] for line in lines} == {"auto", "sublinear", "linear", "last value", "last change"}

    def test_a_job_log_after_another(self, write: Callable[[str, str], Path]) -> None:
        rows = [f"{i},{i * 1000},0,{100 + i % 7},4,600,u{i % 3},g,-1,-1,1" for i in range(80)]
        first = write("first.csv", HEADING + "\n".join(rows[:50]))
        second = write("second.csv.gz", HEADING + "\n".join(rows[50:]))
        table = scores("runtime", str(second), "--history", str(first))
        lines = {line["method"]: line for line in table["run time, second.csv.gz"]}
        assert lines.keys() == {"stack", "svr", "request", "last two"}
        assert {line["items"] for line in lines.values()} == {30}
        assert lines["request"]["mae s"] == pytest.approx(np.mean([500 - i % 7 for i in range(50, 80)]))

    def test_speeds_of_both_kinds_of_file_together(self, write: Callable[[str, str], Path]) -> None:
        counted = write("a.csv", "model,gpu_type,num_nodes,num_replicas,local_bsz,step_time_s\n"
                        + "".join(f"m,g,{n},{2 * n},8,{1 + n / 10}\n" for n in (1, 2, 4)))  # fmt: skip
        placed = write("b.csv", "model,gpu_type,placement,local_bsz,step_time_s\nm,g,1,8,0.9\nm,g,44,8,1.3\n")
        (lines,) = scores("speed", str(counted), str(placed)).values()
        assert {line["part"] for line in lines} == {
            f"from {n}{of}" for n in (1, 2, 3) for of in ("", ": m", ": g")
        }  # fmt: skip

    def test_speeds_on_other_types_of_gpu(self, write: Callable[[str, str], Path]) -> None:
        speeds = {"a": (10, 1), "b": (30, 3), "c (batch size 2)": (8, 0.5), "c (batch size 4)": (4, 0.25), "d": (5, 0)}
        rows = [
            f"{kind},{job},1,{rate}"
            for job, (v100, k80) in speeds.items()
            for kind, rate in (("v100", v100), ("k80", k80))
        ]
        path = write(
            "a.csv", "gpu_type,job_type,num_gpus,steps_per_s\n" + "\n".join([*rows, "k80_unconsolidated,a,2,1"])
        )
        (lines,) = scores("gpu-types", str(path)).values()
        found = {(line["part"], line["method"]): line for line in lines}
        assert {line["items"] for line in lines} == {8, 4}  # of four jobs either way; d did not run on a k80
        assert found["v100 to k80", "as on the other type"]["error"] > 0.85
        assert found["v100 to k80", "by other kinds"]["error"] < 0.7
        assert found["v100 to k80", "by its kind, too"]["error"] < found["v100 to k80", "by other kinds"]["error"]

    def test_a_search_in_a_history(self, write: Callable[[str, str], Path]) -> None:
        tested, history = write("a.jsonl", curve_lines(20, 9, group="g")), write("b.jsonl", curve_lines(8, 9))
        (lines,) = scores("optstop", str(tested), "--history", str(history)).values()
        assert [line["method"] for line in lines] == ["optstop", "median rule", "successive halving", "none"]

    def test_people_get_columns_with_what_is_not_known_as_a_dash(self, write: Callable[[str, str], Path]) -> None:
        result = run("evaluate", "curves", str(write("a.jsonl", curve_lines(6))))
        assert result.output.startswith("last value, from 25% of the curve:\n")
        heading, *rows = result.output.splitlines()[1:]
        assert heading.split()[:3] == ["PART", "METHOD", "ITEMS"]
        assert rows[-1].split()[-1] == "-"

    def test_a_group_named_by_a_villain_moves_no_cursor(self, write: Callable[[str, str], Path]) -> None:
        lines = curve_lines(6, group="a\x1b[2J") + curve_lines(6, group="b")
        assert "\x1b" not in run("evaluate", "curves", str(write("a.jsonl", lines))).output


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("", "not one line with a curve of val_acc"),
            ("\n\n", "not one line with a curve of val_acc"),
            ('{"val_acc": [0.1]}\n{"val_acc": [0.1, "x"]}\n', ":2: val_acc is not a list of numbers"),
            ('{"val_acc": [0.1, NaN]}', ":1: val_acc holds a number that is not finite"),
            ('{"val_acc": [1e999]}', ":1: val_acc holds a number that is not finite"),
            ('{"val_acc": [%s]}' % ("9" * 400), ":1: val_acc holds a number that is not finite"),
            ('{"val_acc": [true]}', ":1: val_acc is not a list of numbers"),
            ('{"val_acc": []}', ":1: val_acc is not a list of numbers"),
            ('{"val_acc": 7}', ":1: val_acc is not a list of numbers"),
            ('{"val_acc": [%s0.5]}' % ("0.5," * 10_000), ":1: val_acc has 10001 points"),
            ("[1]", ":1: not a JSON object"),
            ("{", ":1: not a line of JSON"),
            ("[" * 100_000, ":1: not a line of JSON"),
            ('{"val_acc": [0.1, 0.2]}\n' * 3, "fewer than two curves of more than 5 points"),
        ],
    )
    def test_curves(self, write: Callable[[str, str], Path], content: str, reason: str) -> None:
        assert reason in refused("curves", str(write("a.jsonl", content)))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("", "cannot be read"),
            (HEADING, "there is no row in it"),
            ("job,submit\n1,2\n", ":1: the column run is missing; it has job, submit"),
            (HEADING + "\n1,0,0,x,4,600,u,g,e,q,p\n", ":3: run is 'x', not a number"),
            (HEADING + "1,0,0,5,4,600,u,g,e,q,p\n2,nan,0,5,4,600,u,g,e,q,p\n", ":3: submit is 'nan', not a number"),
            (HEADING + "1,0,0\n", ":2: run is '', not a number"),
            (HEADING + "\n1,2,3,4,5,6,7,8,9,10,11,12\n", ":3: there are more fields than columns"),
            (HEADING + '1,0,0,"5\n",4,600,u,g,e,q,p\n', ":2: run is '\"5', not a number"),
            (HEADING + "1,0,0,-1,4,600,u,g,e,q,p\n", "no job in it has run"),
        ],
    )
    def test_job_logs(self, write: Callable[[str, str], Path], content: str, reason: str) -> None:
        assert reason in refused("runtime", str(write("a.csv", content)))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("model,gpu_type,local_bsz,step_time_s\nm,g,8,1\n", ":1: there is neither the column placement nor"),
            ("model,gpu_type,placement,local_bsz,step_time_s\nm,g,1,8,0\n", ":2: step_time_s is 0"),
            ("model,gpu_type,placement,local_bsz,step_time_s\nm,g,10,8,1\n", ":2: there is no GPU on some node"),
            ("model,gpu_type,placement,local_bsz,step_time_s\nm,g,1a,8,1\n", ":2: placement is '1a', not digits"),
            ("model,gpu_type,placement,local_bsz,step_time_s\nm,g,11,8,1\nm,g,1,8,1\n", "more than 3 counts"),
        ],
    )
    def test_speeds(self, write: Callable[[str, str], Path], content: str, reason: str) -> None:
        assert reason in refused("speed", str(write("a.csv", content)))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("gpu_type,num_gpus,steps_per_s\nm,1,8\n", ":1: the column job_type is missing"),
            ("gpu_type,job_type,num_gpus,steps_per_s\nv,m,1,-8\n", ":2: steps_per_s is negative"),
            ("gpu_type,job_type,num_gpus,steps_per_s\nv,m,0,8\n", ":2: num_gpus is less than 1"),
            ("gpu_type,job_type,num_gpus,steps_per_s\nv,m,1,8\nk,m,2,8\n", "on as many GPUs of two types"),
        ],
    )
    def test_speeds_by_type_of_gpu(self, write: Callable[[str, str], Path], content: str, reason: str) -> None:
        assert reason in refused("gpu-types", str(write("a.csv", content)))

    def test_a_comment_in_a_log_of_the_standard_workload_format_counts_as_a_line(
        self, write: Callable[[str, str], Path]
    ) -> None:
        path = write("a.swf", "; Version: 2\n;\n1 0 0 10 4 -1 -1 4 60 -1 1 3 4 5 6 7 -1 -1\n2 0 0 ten 4\n")
        assert f"{path}:4: run is 'ten', not a number" in refused("runtime", str(path))

    @pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
    @pytest.mark.parametrize(
        "content",
        [b"no gzip", gzip.compress(b"x" * 999)[:-9], gzip.compress(b"\xff\xfe")],
        ids=["no gzip", "cut short", "no text"],  # the bytes have the time in them, and each worker makes its own
    )
    def test_files_that_are_broken(self, tmp_path: Path, name: str, content: bytes) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        kind = "runtime" if "csv" in name else "loss"
        assert str(path) in refused(kind, str(path))

    def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        assert refused("runtime", str(tmp_path / "none.csv")).endswith(
            "none.csv cannot be read: No such file or directory\n"
        )
        assert "Is a directory" in refused("loss", str(tmp_path))

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ((), "name a kind"),
            (("curves",), "needs at least one FILE"),
            (("curves", "x", "--from-ledger"), "name a kind"),
            (("loss", "x", "--history", "y"), "--history is for curves, optstop, runtime only"),
            (("runtime", "x", "--history", "y", "--history", "z"), "name one"),
        ],
    )
    def test_mistakes_on_the_command_line(self, arguments: tuple[str, ...], reason: str) -> None:
        assert reason in refused(*arguments)

    def test_a_history_that_comes_after(self, write: Callable[[str, str], Path]) -> None:
        early = write("early.csv", HEADING + "1,0,0,5,4,600,u,g,e,q,p\n")
        late = write("late.csv", HEADING + "1,9,0,5,4,600,u,g,e,q,p\n")
        assert "before the last one of the history" in refused("runtime", str(early), "--history", str(late))


class TestJobLogs:
    def test_the_standard_workload_format_in_order_of_submission(self, write: Callable[[str, str], Path]) -> None:
        row = "{} {} 5 {} 4 -1 -1 4 60 -1 1 3 4 5 6 7 -1 -1\n"
        log = dataset_files.read_job_log(write("a.swf.gz", "; c\n" + row.format(1, 50, 10) + row.format(2, 20, 7)))
        assert log.runtimes.tolist() == [7, 10]
        assert log.jobs[0] == {
            "submit": 20.0, "end": 32.0, "cpus": 4.0, "time_limit": 60.0,
            "user": "3", "group": "4", "exe": "5", "qos": "6", "partition": "7",
        }  # fmt: skip

    def test_what_is_minus_one_is_not_known(self, write: Callable[[str, str], Path]) -> None:
        path = write("a.csv", HEADING + "1,0,-1,5,-1,-1,-1,g,-1,-1,-1\n2,0,-1,-1,1,1,u,g,e,q,p\n")
        log = dataset_files.read_job_log(path)
        assert log.jobs == [{"submit": 0.0, "end": 5.0, "group": "g"}]

    def test_a_line_of_json_without_end_is_refused(
        self, write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dataset_files, "LINE_BYTES", 64)
        with pytest.raises(DataError, match=r":2: the line is longer than 64 bytes"):
            dataset_files.read_loss_curves([write("a.jsonl", '{"loss": [1]}\n{"loss": [' + "1," * 99 + "1]}\n")])


class TestTheSitesOwnJobs:
    @staticmethod
    def finish(site: Site, *values: float, most: int = 20, cycles_at: tuple[int, ...] = (10,)) -> int:
        """A job that reports these values and ends."""
        script = f"#!/bin/sh\n#PLUG --target=accuracy>=0.99 --max-iterations={most}\ntrain\n"
        job = site.cluster.submit(script.encode())
        site.cluster.start(job)
        for iteration, value in enumerate(values, start=1):
            site.train(job, {iteration: value})
            if iteration in cycles_at:
                site.cycle()
        site.cluster.end(job)
        site.cycle()
        return job

    def test_an_empty_ledger_is_refused(self, site: Site) -> None:
        site.cycle()
        assert "no prediction of a job that has ended" in site.ask("evaluate", "--from-ledger", code=1)

    def test_run_times_against_what_was_first_predicted(self, site: Site) -> None:
        self.finish(site, *(0.9 - 0.5 / i for i in range(1, 21)))
        row = site.json("acct", "-j", "1")["jobs"][0]
        lines = {line["method"]: line for line in site.json("evaluate", "--from-ledger")["run time, when first seen"]}
        off = abs(row["predicted"] - row["elapsed"])
        assert lines["predicted"]["items"] == 1
        assert lines["predicted"]["mae s"] == pytest.approx(off, abs=1)
        inside = row["predictedlow"] <= row["elapsed"] <= row["predictedhigh"]
        assert lines["predicted"]["covers 90%"] == inside
        assert lines["request"]["mae s"] == pytest.approx(abs(row["timelimit"] - row["elapsed"]), abs=1)

    def test_final_values_against_what_was_predicted_at_half(self, site: Site) -> None:
        self.finish(site, *(0.9 - 0.5 / i for i in range(1, 21)))
        self.finish(site, *(0.9 - 0.5 / i for i in range(1, 11)), *[0.1] * 10)
        rows = site.json("acct", "-j", "1,2")["jobs"]
        (line,) = site.json("evaluate", "--from-ledger")["final value, at half of the iterations"]
        assert (line["part"], line["items"]) == ("accuracy", 2)
        assert line["mae"] == pytest.approx(np.mean([abs(row["foreseen"] - row["value"]) for row in rows]))
        assert line["covers 90%"] == 0.5

    def test_a_job_that_ended_early_has_no_final_value(self, site: Site) -> None:
        self.finish(site, *(0.9 - 0.5 / i for i in range(1, 15)))
        assert "final value, at half of the iterations" not in site.json("evaluate", "--from-ledger")

    def test_finished_curves_are_predicted_anew(self, site: Site) -> None:
        for top in np.linspace(0.6, 0.9, 10):
            self.finish(site, *(top - 0.5 / i for i in range(1, 21)), cycles_at=())
        lines = site.json("evaluate", "--from-ledger", "--observe", "0.5")["learning curves, predicted now"]
        assert {(line["part"], line["items"]) for line in lines} == {("with history", 10), ("cold", 10)}

    def test_finished_curves_that_are_too_short_for_the_share_are_named(self, site: Site) -> None:
        for top in np.linspace(0.6, 0.9, 10):
            self.finish(site, *(top - 0.5 / i for i in range(1, 21)), cycles_at=())
        refused = site.ask("evaluate", "--from-ledger", "--observe", "0.99", code=1)
        assert "fewer than two curves of more than 5 points" in refused
