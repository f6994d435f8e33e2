"""The alerts, tried by promtool: each fires where it should, and none where all is well."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
RULES = ROOT / "site_config/prometheus.rules.yml"
WELL: Mapping[str, str] = {
    'up{job="slurmplug"}': "1x",
    "slurmplug_daemon_alive": "1x",
    "slurmplug_ledger_readable": "1x",
    "slurmplug_snapshot_timestamp_seconds": "0+60x",
    "slurmplug_cycle_interval_seconds": "60x",
    'slurmplug_cycles_total{result="done"}': "0+1x",
    'slurmplug_cycles_total{result="failed"}': "0x",
    "slurmplug_frozen": "0x",
    "slurmplug_paused": "0x",
    'slurmplug_commands_total{verb="update",status="done"}': "0+9x",
    'slurmplug_commands_total{verb="update",status="refused"}': "0x",
    'slurmplug_cycle_stage_seconds_sum{stage="read"}': "0+2x",
    'slurmplug_cycle_stage_seconds_count{stage="read"}': "0+1x",
    'slurmplug_cycle_stage_seconds_sum{stage="decide"}': "0+3x",
    'slurmplug_cycle_stage_seconds_count{stage="decide"}': "0+1x",
    'slurmplug_ended_operations_total{kind="stop",outcome="stopped"}': "0+1x",
    'slurmplug_faults_total{rule="iteration"}': "0+1x",
    'slurmplug_forecasts_total{quantity="run_time",inside="true"}': "0+9x",
    'slurmplug_forecasts_total{quantity="run_time",inside="false"}': "0+1x",
}
"""Series of a minute each, as promtool writes them; after x the number of minutes is put."""
ILL: Mapping[str, Mapping[str, str]] = {
    "SlurmplugNotScraped": {'up{job="slurmplug"}': "0x"},
    "SlurmplugNotAlive": {"slurmplug_daemon_alive": "0x"},
    "SlurmplugLedgerUnreadable": {"slurmplug_ledger_readable": "0x"},
    "SlurmplugSnapshotOld": {"slurmplug_snapshot_timestamp_seconds": "0x"},
    "SlurmplugCyclesFail": {'slurmplug_cycles_total{result="failed"}': "0+1x"},
    "SlurmplugFrozen": {"slurmplug_frozen": "1x"},
    "SlurmplugWritesRefused": {'slurmplug_commands_total{verb="update",status="refused"}': "0+2x"},
    "SlurmplugCycleSlow": {'slurmplug_cycle_stage_seconds_sum{stage="decide"}': "0+30x"},
    "SlurmplugOperationsGiveUp": {'slurmplug_ended_operations_total{kind="migrate",outcome="gave up"}': "0+1x"},
    "SlurmplugReportsDoubted": {'slurmplug_faults_total{rule="iteration"}': "0+50x"},
    "SlurmplugForecastsTooSure": {'slurmplug_forecasts_total{quantity="run_time",inside="true"}': "0+1x"},
    "SlurmplugPaused": {"slurmplug_paused": "1x"},
}
MINUTES: Mapping[str, int] = {"SlurmplugPaused": 1500}
"""Others are over within 100."""


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_each_is_tried() -> None:
    assert sorted(alerts()) == sorted(ILL)


@pytest.mark.parametrize("ill", ["", *ILL])
def test_it_fires_where_it_should_and_no_other_does(tmp_path: Path, ill: str) -> None:
    assert shutil.which("promtool"), "install it: apt-get install prometheus"
    minutes = MINUTES.get(ill, 100)
    series = {**WELL, **ILL.get(ill, {})}
    tests: list[dict[str, Any]] = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": f"{values}{minutes}"} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{minutes}m",
                    "exp_samples": [{"labels": f'{{alertname="{ill}"}}', "value": 1}] if ill else [],
                }
            ],
        }
    ]
    file = tmp_path / "tests.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    tried = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_each_says_what_to_do() -> None:
    text = RULES.read_text()
    assert text.count("summary:") == text.count("description:") == text.count("severity:") == len(alerts())
