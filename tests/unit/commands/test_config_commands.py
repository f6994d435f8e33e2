"""check-config and show-config, and what is made from the configuration's fields."""

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.cluster.site_client import PROGRAMS
from slurmplug.config import render, schema
from slurmplug.config.render import documented
from slurmplug.config.schema import Config
from slurmplug.doctor import config_check
from tests.ledgers import run

ROOT = Path(__file__).parents[3]
SETTINGS = """
policy = "mlfs"
interval = 12.5
[mode]
default = "advise"
stop = "act"
[guardrails]
exclude_users = ["root", "ad\\u0000min\\u007f", "\\U0001F600\\""]
[policies.mlfs]
alpha = 0.5
form = "literal"
"""


def checked(tmp_path: Path, text: str) -> tuple[int, str]:
    """Of a file whose ledger's folder and spool are there."""
    for folder in ("ledger", "spool/reports", "spool/requests"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    places = f'[spool]\npath = "{tmp_path}/spool"\n[ledger]\npath = "{tmp_path}/ledger/ledger.db"\n'
    file = tmp_path / "slurmplug.toml"
    file.write_text(f"{text}\n{places}")
    result = run("check-config", "--config", str(file))
    return result.exit_code, result.output


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs with the names of Slurm's, in PATH."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.usefixtures("slurm")
class TestCheckConfig:
    def test_a_valid_file_is_ok(self, tmp_path: Path) -> None:
        code, output = checked(tmp_path, '[guardrails]\nexclude_users = ["root"]')
        assert (code, output) == (0, f"{tmp_path}/slurmplug.toml: ok\n")

    def test_a_file_that_only_says_where_things_are_is_ok(self, tmp_path: Path) -> None:
        assert checked(tmp_path, "")[0] == 0

    def test_settings_of_a_policy_of_the_sites_own_that_is_not_in_use_are_ok(self, tmp_path: Path) -> None:
        assert checked(tmp_path, "[policies.earliest-deadline]\npreempt = true")[0] == 0

    def test_slurms_files_are_ok_where_they_are(self, tmp_path: Path) -> None:
        (tmp_path / "slurm.conf").touch()
        assert checked(tmp_path, f'[slurm]\nconf = "{tmp_path}/slurm.conf"\nbin = "{tmp_path}/slurm"')[0] == 0

    def test_each_path_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "slurmplug.toml"
        (tmp_path / "spool/reports").mkdir(parents=True)
        (tmp_path / "bin").touch()
        file.write_text(
            f'[slurm]\nconf = "{tmp_path}"\nbin = "{tmp_path}/bin"\n[spool]\npath = "{tmp_path}/spool"\n'
            f'[ledger]\npath = "{tmp_path}/none/ledger.db"\n'
        )
        result = run("check-config", "--config", str(file))
        assert result.exit_code == 1
        assert result.output.splitlines()[1:] == [
            f"  slurm.conf: {tmp_path}: Not a file",
            f"  slurm.bin: {tmp_path}/bin: Not a directory",
            f"  ledger.path: {tmp_path}/none: No such file or directory",
            f"  spool.path: {tmp_path}/spool/requests: No such file or directory",
        ]

    def test_what_this_machine_does_not_have_is_named(
        self, tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(config_check, "find_spec", lambda name: None)
        (slurm / "sprio").unlink()
        (tmp_path / "ledger" / "ledger.db").mkdir(parents=True)
        code, output = checked(tmp_path, SETTINGS + '[slurm]\nclient = "pyslurm"')
        assert code == 1
        assert output.splitlines()[1:] == [
            f"  ledger.path: {tmp_path}/ledger/ledger.db: Not a file",
            "  guardrails.exclude_users: ad\\x00min\\x7f: No such user",
            '  guardrails.exclude_users: \U0001f600": No such user',
            "  slurm.client: pyslurm: Not installed; pip install 'slurmplug[pyslurm]', or client = \"cli\"",
            "  slurm.bin: sprio: Not found in PATH; install Slurm's client commands",
        ]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("intervall = 3", "intervall: unknown key, did you mean interval?"),
            ("[mode]\nstopp = 'act'", "mode.stopp: unknown key, did you mean stop?"),
            ("interval = 0", "interval: must be greater than 0"),
            ("[mode]\ndefault = 'atc'", "mode.default: must be 'observe', 'advise' or 'act'"),
            ("interval = ", "is not valid TOML"),
            ("policy = 'mlf'", "there is no policy 'mlf'; did you mean mlf"),
            ("[policies.mlfs]\nalpa = 1", "policies.mlfs.alpa: unknown key; did you mean alpha?"),
            ("[policies.mlfs]\nalpha = 2", "alpha is between 0 and 1, not 2"),
            ("[policies.mlfs]\nalpha = 'x'", "policies.mlfs.alpha: must be a number, not 'x'"),
            ("[policies.mlfss]\nalpha = 0.1", "policies.mlfss: there is no policy 'mlfss'; did you mean mlfs?"),
            ("[takeover]\nfolder = '/none'", "takeover.folder: /none: No such file or directory"),
            ("[endpoint]\nmunge_socket = '/'", "endpoint.munge_socket: /: Not a socket"),
        ],
    )
    def test_a_mistake_is_named_with_the_nearest_valid_word(self, tmp_path: Path, text: str, said: str) -> None:
        code, output = checked(tmp_path, text)
        assert code == 1
        assert said in output

    def test_every_mistake_is_named_at_once(self, tmp_path: Path) -> None:
        output = checked(tmp_path, "intervall = 3\n[stop]\ngrace = -1\n")[1]
        assert "intervall" in output
        assert "stop.grace" in output

    @pytest.mark.parametrize("command", ["check-config", "daemon", "reset", "show-config"])
    @pytest.mark.parametrize("name", ["none.toml", "file/none.toml"])
    def test_a_file_that_is_not_there_is_named_with_how_to_name_another(
        self, tmp_path: Path, command: str, name: str
    ) -> None:
        (tmp_path / "file").touch()
        result = run(command, "--config", str(tmp_path / name))
        assert result.exit_code == 1
        assert (
            f"there is no configuration {tmp_path / name}: name one with --config or SLURMPLUG_CONFIG" in result.output
        )

    def test_the_environment_may_name_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        checked(tmp_path, "")
        monkeypatch.setenv("SLURMPLUG_CONFIG", str(tmp_path / "slurmplug.toml"))
        assert run("check-config").exit_code == 0


class TestShowConfig:
    def test_what_is_shown_is_the_configuration(self, tmp_path: Path) -> None:
        (tmp_path / "slurmplug.toml").write_text(SETTINGS)
        shown = run("show-config", "--config", str(tmp_path / "slurmplug.toml")).output
        assert schema.parse(shown) == schema.parse(SETTINGS)
        assert "interval = 12.5" in shown
        assert "breaker_failures = 5" in shown

    def test_defaults_need_no_file(self) -> None:
        shown = run("show-config", "--defaults", "--config", "/nowhere").output
        assert schema.parse(shown) == Config()

    def test_every_key_is_shown(self) -> None:
        shown = render.toml(Config())
        for name, *_ in documented():
            assert name == "policies" or re.search(rf"^(# )?{name.split('.')[-1]} =", shown, re.MULTILINE)

    @given(
        st.recursive(
            st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.dates(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=6,
        )
    )
    def test_a_policys_settings_come_back_whatever_they_are(self, value: Any) -> None:
        settings = {"policies": {"some.one\n": {"key \x7f": value}}}
        assert tomllib.loads(render.toml(Config.from_table(settings)))["policies"] == settings["policies"]


class TestTheExample:
    def test_it_is_made_from_the_fields(self) -> None:
        assert (ROOT / render.EXAMPLE).read_text() == render.example(), "run python -m slurmplug.config.render"

    def test_it_is_the_defaults(self) -> None:
        assert schema.load(ROOT / render.EXAMPLE) == Config()

    def test_it_has_every_key_with_its_description(self) -> None:
        lines = (ROOT / render.EXAMPLE).read_text().splitlines()
        for name, _, _, about in documented():
            if name != "policies":
                described = [i for i, line in enumerate(lines) if line.startswith(f"# {about} (")]
                written = [i for i, line in enumerate(lines) if re.match(rf"(# )?{name.split('.')[-1]} =", line)]
                assert any(i + 1 in written for i in described), name

    def test_its_policies_tables_are_valid_when_their_comments_are_taken_away(self) -> None:
        text = (ROOT / render.EXAMPLE).read_text()
        tables = text[text.index("# [policies.") :].replace("# ", "")
        assert set(schema.parse(tables).policies) >= {"mlfs", "mlf-h"}


class TestThePage:
    def test_its_table_is_made_from_the_fields(self) -> None:
        page = (ROOT / render.PAGE).read_text()
        assert render.generated().renewed(page) == page, "run python -m slurmplug.config.render"

    def test_it_has_a_row_for_every_key(self) -> None:
        page = (ROOT / render.PAGE).read_text()
        for name, *_ in documented():
            assert f"| `{name}` |" in page

    def test_its_example_is_valid(self) -> None:
        page = (ROOT / render.PAGE).read_text()
        example = re.search(r"\n\n((?:    .*\n)+)", page[page.index("Let it rank") :])
        assert example
        assert schema.parse(re.sub(r"^    ", "", example[1], flags=re.MULTILINE)).mode.of("rank") == "act"


def test_the_unit_runs_the_daemon_in_the_foreground_as_its_own_user_and_reloads_by_a_signal() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "site_config/slurmplugd.service")
    service = unit["Service"]
    assert service["ExecStart"].endswith("slurmplug daemon")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["User"] == "slurmplug"
    paths = (Config().ledger.path.parent, Config().spool.path)
    assert service["StateDirectory"] == paths[0].name
    assert str(paths[1]) in service["ReadWritePaths"]
