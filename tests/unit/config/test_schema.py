"""The configuration: every key known, every mistake named with what was probably meant."""

from pathlib import Path

import pytest

from slurmplug.config.render import documented
from slurmplug.config.schema import Config, load, parse
from slurmplug.errors import ConfigError


def mistakes(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "slurmplug.toml")
    return str(caught.value)


def test_an_empty_file_observes() -> None:
    config = parse("")
    assert config == Config()
    assert {config.mode.of(kind) for kind in ("rank", "stop", "migrate")} == {"observe"}


def test_a_kind_of_action_has_its_own_mode_or_the_default() -> None:
    modes = parse('[mode]\ndefault = "advise"\nstop = "act"').mode
    assert [modes.of(kind) for kind in ("stop", "rank", "preempt")] == ["act", "advise", "advise"]


@pytest.mark.parametrize(
    ("text", "where", "meant"),
    [
        ("intervall = 30", "intervall", "interval"),
        ("[guardrails]\nstops_per_hours = 3", "guardrails.stops_per_hours", "stops_per_hour"),
        ("[ledgr]\npath = '/tmp/x'", "ledgr", "ledger"),
        ("[mode]\nstops = 'act'", "mode.stops", "stop"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(text: str, where: str, meant: str) -> None:
    assert f"{where}: unknown key, did you mean {meant}?" in mistakes(text)


def test_a_key_like_no_other_is_named_with_all_that_there_are() -> None:
    assert "stop.zzzz: unknown key; known: grace, cancel" in mistakes("[stop]\nzzzz = 1")


def test_every_mistake_is_named_at_once() -> None:
    said = mistakes("interval = 0\npolicie = 'x'\n[stop]\ngrace = 'soon'\n[mode]\nrank = 'enforce'")
    assert said.startswith("slurmplug.toml is not valid:")
    assert all(name in said for name in ("interval", "policie", "stop.grace", "mode.rank"))
    assert "'observe', 'advise' or 'act'" in said


@pytest.mark.parametrize("text", ["interval = nan", "interval = inf", "interval = -1", "[ledger]\nkeep_days = nan"])
def test_a_span_of_time_is_a_positive_number(text: str) -> None:
    assert "greater than 0" in mistakes(text) or "finite" in mistakes(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster = 3", "cluster: must be a text"),
        ("interval = '60'", "interval: must be a number"),
        ("interval = true", "interval: must be a number"),
        ("mode = 'act'", "mode: must be a table"),
        ("policies = 3", "policies: must be a table"),
        ("[policies]\nmlfs = 3", "policies.mlfs: must be a table"),
        ("[slurm]\nconf = 3", "slurm.conf: must be a path, as a text"),
        ("[guardrails]\nstops_per_cycle = 1.5", "guardrails.stops_per_cycle: must be a whole number"),
        ("[priority]\nspcing = 10", "priority.spcing: unknown key"),
        ("[guardrails]\nexclude_users = 'ada'", "guardrails.exclude_users: must be a list of texts"),
        ("[guardrails]\nexclude_users = [1]", "guardrails.exclude_users.0: must be a text"),
        ("[guardrails]\nrequeues_per_user = true", "guardrails.requeues_per_user: must be a whole number"),
        ("[guardrails]\nurgency_of = {lab = 'x'}", "guardrails.urgency_of.lab: must be a number"),
        ("[stop]\ncancel = 'no'", "stop.cancel: must be true or false"),
        ("[endpoint]\nlisten = '10.0.0.1'", "endpoint.listen: expected HOST:PORT"),
        ("[endpoint]\nlisten = '10.0.0.1:99999'", "endpoint.listen: a port must be at most 65535"),
        ("[endpoint]\nurl = 'https://ctl:6830'", "endpoint.url: expected http://CONTROLLER:PORT"),
        ("[endpoint.clusters]\neast = 'https://ctl:6830'", "endpoint.clusters.east: expected http://CONTROLLER:PORT"),
        ("[endpoint]\nurl = 'http://ctl:70000/'", "endpoint.url: a port must be at most 65535"),
    ],
)
def test_a_value_of_another_kind_is_told_what_it_must_be(text: str, said: str) -> None:
    assert f"\n  {said}" in mistakes(text)


@pytest.mark.parametrize("path", ["", "ledger.db", "~/ledger.db"])
def test_a_path_begins_at_the_root_as_commands_run_in_any_folder(path: str) -> None:
    assert "ledger.path: must begin with /" in mistakes(f"[ledger]\npath = '{path}'")


def test_a_whole_number_of_seconds_is_a_number() -> None:
    assert parse("interval = 30").interval == 30.0


def test_what_is_not_toml_is_said_with_its_line() -> None:
    assert "slurmplug.toml is not valid TOML" in mistakes("interval = ")
    assert "line 2" in mistakes("interval = 1\nmode = [,]\n")


@pytest.mark.parametrize("text", [f"interval = {'9' * 5000}", f"interval = {'[' * 5000}"])
def test_toml_beyond_what_is_read_is_refused_as_other_mistakes_are(text: str) -> None:
    assert "slurmplug.toml is not valid TOML" in mistakes(text)


@pytest.mark.parametrize("content", [None, b"policy = '\xff'"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "slurmplug.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"slurmplug\.toml cannot be read"):
        load(path)


def test_the_settings_of_any_policy_are_handed_on_as_they_are() -> None:
    config = parse("[policies.mlfs]\nepsilon = 0.01\n[policies.of_the_site]\nx = [1, 2]")
    assert config.policies == {"mlfs": {"epsilon": 0.01}, "of_the_site": {"x": [1, 2]}}


def test_keys_of_earlier_versions_are_accepted_without_effect_and_said(caplog: pytest.LogCaptureFixture) -> None:
    text = "[priority]\nspacing = 10\ntop = 100\n[guardrails]\nunmanaged_share = 0.2\nmax_wait = 60"
    assert parse(text, "site.toml") == parse("[guardrails]\nmax_wait = 60")
    said = [record.getMessage().partition(" has no effect")[0] for record in caplog.records]
    assert said == ["site.toml: priority.spacing", "site.toml: priority.top", "site.toml: guardrails.unmanaged_share"]


def test_every_key_is_documented_with_its_type_and_default() -> None:
    rows = documented()
    assert all(kind and description for _, kind, _, description in rows)
    values = {name: (kind, default) for name, kind, default, _ in rows}
    assert values["mode.default"] == ("observe | advise | act", '"observe"')
    assert values["mode.stop"] == ("observe | advise | act", "")
    assert values["stop.cancel"] == ("true | false", "false")
    assert values["guardrails.exclude_users"] == ("list of texts", "[]")
    assert values["operations.interval"] == ("number", "5")
    assert values["ledger.path"] == ("path", '"/var/lib/slurmplug/ledger.db"')


def test_the_documented_defaults_are_a_valid_file() -> None:
    lines = [f"{name} = {default}" for name, _, default, _ in documented() if default]
    assert parse("\n".join(lines)) == Config()


def test_jobs_with_idle_gpus_are_stopped_only_where_their_users_are_told() -> None:
    told = 'notifications.mail = "all"\nstop.idle_gpus = 7200\n'
    assert parse(told).stop.idle_gpus == 7200.0
    for text in ("stop.idle_gpus = 7200", told + 'notifications.about = ["deadline"]\n'):
        with pytest.raises(ConfigError, match=r"\n  stop\.idle_gpus stops only jobs whose users were sent"):
            parse(text)
