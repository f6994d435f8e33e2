"""Debian's Prometheus reads the daemon's metrics: each panel of the dashboard and each alert finds data."""

import json
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurmplug.sandbox import Sandbox, WaitTimeout
from tests.live.daemon_process import DaemonProcess, daemon_beside, training
from tests.live.login_node import free_port

SITE = Path(__file__).parents[2] / "site_config"
RULES = SITE / "prometheus.rules.yml"
COMPARISON = re.compile(r" (==|>=|<=|>|<) ")


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


class Prometheus:
    """One that reads the metrics each second."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, what: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{what}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
            return json.loads(answer.read())["data"]

    def values(self, query: str) -> list[float]:
        return [float(each["value"][1]) for each in self.get("query", query=query)["result"]]

    def reads(self) -> bool:
        try:
            return self.values('up{job="slurmplug"}') == [1.0]
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, metrics: str) -> Iterator[Prometheus]:
    assert shutil.which("prometheus"), "install it: apt-get install prometheus"
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "slurmplug", "static_configs": [{"targets": [metrics]}]}],
    }
    file = folder / "prometheus.yml"  # JSON is YAML
    file.write_text(json.dumps(config))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, cwd=folder
        )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(30)


def panel_queries() -> list[tuple[str, str]]:
    """The title of each panel, and each of its queries as Grafana sends it, which here spans a minute."""
    dashboard = json.loads((SITE / "grafana-dashboard.json").read_text())
    return [
        (panel["title"], re.sub(r"\$__(rate_interval|range)", "1m", target["expr"]))
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def alert_queries() -> list[tuple[str, str]]:
    """Each alert and its expression, with comparisons that answer 0 or 1 instead of nothing."""
    found = re.findall(r"- alert: (\w+)\n\s+expr: (.*)", RULES.read_text())
    return [(name, COMPARISON.sub(r" \1 bool ", expression)) for name, expression in found]


def test_every_panel_and_every_alert_finds_data(cluster: Sandbox, daemon: DaemonProcess, tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    daemon.start(f'[metrics]\nlisten = "{metrics}"\n')
    ada, bob = cluster.researchers[:2]
    lines = "#PLUG --max-iterations=8 --type=short"
    with prometheus(tmp_path, metrics) as reader:
        cluster.wait(reader.reads, what="metrics")
        for _ in range(2):  # the second is forecast by the first
            cluster.wait_job(cluster.sbatch(ada, training(lines, iterations=8, seconds=1)), "COMPLETED", 60)
        target = "#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=400"
        cluster.wait_job(cluster.sbatch(ada, training(target)), "COMPLETED")
        cluster.wait_job(cluster.sbatch(ada, "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"), "RUNNING")
        for urgency in (1, 9):
            cluster.sbatch(bob, f"#!/bin/sh\n#SBATCH --gres=gpu:4\n#PLUG --urgency={urgency}\nsleep 600\n")
        daemon.pass_cycles(5)
        empty: list[tuple[str, str]] = []

        def all_have_data() -> bool:
            empty[:] = [each for each in (*panel_queries(), *alert_queries()) if not reader.values(each[1])]
            return not empty

        try:
            cluster.wait(all_have_data, 180, "data of every panel and alert")
        except WaitTimeout as error:
            error.add_note(f"there is none of {empty}")
            raise
        stops = reader.values('increase(slurmplug_stops_total{rule="target"}[5m])')
        saved = reader.values('increase(slurmplug_saved_gpu_seconds_total{rule="target"}[5m])')
        assert stops[0] > 0
        assert saved[0] > 60  # 390 iterations of a fifth of a second on four GPUs
        held = "sum by (user) (slurmplug_gpus{state='%s'})"
        assert reader.values(held % "running") == [16.0]
        assert reader.values(held % "pending") == [8.0]
        assert sum(reader.values('increase(slurmplug_forecasts_total{quantity="run_time"}[5m])')) > 0
        health = [rule["health"] for group in reader.get("rules")["groups"] for rule in group["rules"]]
        assert health == ["ok"] * len(alert_queries())
    text = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30).read()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_the_dashboard_shows_every_metric_that_is_worth_a_panel(tmp_path: Path) -> None:
    """All but facts about the installation are shown, or watched by an alert."""
    page = (SITE.parent / "docs/metrics.md").read_text()
    queries = " ".join(query for _, query in (*panel_queries(), *alert_queries()))
    unseen = {name for name in re.findall(r"^\| `(\w+)`", page, re.MULTILINE) if name not in queries}
    assert unseen == {"slurmplug_build_info", "slurmplug_mode_info", "slurmplug_metrics_seconds",
                      "slurmplug_failed_cycles_in_a_row"}  # fmt: skip


def test_where_the_daemon_ends_its_metrics_end_with_it(cluster: Sandbox, daemon: DaemonProcess) -> None:

    metrics = f"127.0.0.1:{free_port()}"
    daemon.start(f'[metrics]\nlisten = "{metrics}"\n')

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30).close()
        except OSError:
            return False
        return True

    cluster.wait(answers, what="metrics")
    assert daemon.signal(signal.SIGTERM) == 0
    cluster.wait(lambda: not answers(), 30, "the end of the metrics")
