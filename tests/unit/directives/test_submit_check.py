"""The submit-time check, in the Lua interpreters that this machine has, beside the parser of the daemon."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmplug.config import submission
from slurmplug.config.schema import Config
from slurmplug.directives import generated
from slurmplug.directives.parser import parse

ROOT = Path(__file__).parents[3]
CHECK = ROOT / "site_config" / "slurmplug.lua"
INTERPRETERS = [name for name in ("lua5.1", "lua5.3", "lua5.4", "luajit") if shutil.which(name)]
NOW = int(datetime(2026, 11, 21, 7, 30, tzinfo=UTC).timestamp())

DRIVER = """
local check = dofile(arg[1])
while true do
    local sizes = io.read("*l")
    if not sizes then break end
    local script, comment, now = sizes:match("(%d+) (%d+) (%d+)")
    local function take(size)
        return size == "0" and "" or io.read(tonumber(size))  -- io.read(0) would wait for more
    end
    script, comment = take(script), take(comment)
    local problems, warnings = check.problems(script, comment, tonumber(now))
    for _, found in ipairs({problems, warnings}) do
        io.write(#found, "\\n", table.concat(found, "\\n"), #found > 0 and "\\n" or "")
    end
    io.flush()
end
"""


class Lua:
    """The check in a Lua interpreter that stays."""

    def __init__(self, interpreter: str, folder: Path, zone: str) -> None:
        driver = folder / "driver.lua"
        driver.write_text(DRIVER)
        self.process = subprocess.Popen(
            [interpreter, driver, CHECK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TZ": zone},
        )

    def found(self, script: bytes, comment: bytes, now: int) -> tuple[list[str], list[str]]:
        """The problems, and the warnings."""
        process = self.process
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"%d %d %d\n" % (len(script), len(comment), now) + script + comment)
        process.stdin.flush()
        return self._list(), self._list()

    def _list(self) -> list[str]:
        assert self.process.stdout
        count = self.process.stdout.readline()
        assert count, "the check threw an error"
        return [self.process.stdout.readline().decode().rstrip("\n") for _ in range(int(count))]

    def close(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


def test_an_interpreter_is_here() -> None:
    assert INTERPRETERS, "install Debian's package lua5.1, which job_submit/lua is linked with"


@pytest.fixture(scope="module", params=INTERPRETERS)
def lua(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lua]:
    started = Lua(request.param, tmp_path_factory.mktemp("lua"), "CET-1CEST,M3.5.0,M10.5.0/3")
    yield started
    started.close()


def expected(script: bytes, comment: bytes, now: int) -> tuple[list[str], list[str]]:
    parsed = parse(script, comment, submitted=now, zone=ZoneInfo("Europe/Berlin"))
    return [str(problem) for problem in parsed.problems], [str(warning) for warning in parsed.warnings]


VALUES = {
    "deadline": [
        *"""2h 90m 1d12h 1h30m 30m1h 1-12:00:00 1-2 1-2:3 1-24 0-00:60 0h 999999h 99999d 4000d 120 12:00:00 2H
        1.5h 18:00 9:05 24:00 23:60 7:30 8:30 8:31 tomorrow today 2026-12-01T18:00 2026-12-01T18:00:00
        2026-12-01T18:00Z 2026-11-21T09:00+01:30 2026-11-21T09:00+0130 2026-11-21T07:30Z 2026-11-21T07:31Z
        2026-11-21T08:30 2026-11-21T08:31 2026-12-01T18:00+15:00 2026-12-01T18:00-1400 2026-12-01T18:00+1
        2026-12-01T18:00z 2026-02-29T12:00 2028-02-29T12:00 2026-13-01T00:00 2026-00-01T00:00
        2026-12-32T00:00 2026-12-01T24:00 2026-12-01T18:60 2026-12-01T18:00:60 2026-12-01 1999-01-01T00:00
        1000-01-01T00:00 2999-01-01T00:00 9999-12-31T23:59 0001-01-01T00:00 2046-01-01T00:00Z ٢h ２h -2h +2h
        2h- - : never""".split(),
    ],
    "target": [
        *"""accuracy>=0.92 loss<=0.1 accuracy>0.9 accuracy=0.9 accuracy=>0.9 >=1 accuracy>= x>=1e3 x>=1e31
        x<=-1e30 x>=nan x>=inf x>=0x10 x>=1_0 x>=.5 x>=5. x>=. x>=+1 x>=--1 x>=1e x>=1e+3 x>=1e9999
        accuracy>=92% accuracy>=% x<=5%% x<=-1e30% x>=1e31% x>=5e1% iteration>=90 time<=5
        9x>=1 a-b>=1 x>=1;rm x>=1111111111111111 x>=0.1111111111111111""".split(),
        "x" * 64 + ">=1",
        "x" * 65 + ">=1",
    ],
    "max-iterations": "1 90 0 -1 1e3 9.5 1000000000 1000000001 99999999999 ９ 1_000 0x10".split(),
    "stop": "iterations optstop target optstp Target never optstop:val_loss optstop: optstop:time optstop:a-b "
    "target:loss optstop:dice_loss optstop:purity optstop:VAL_Loss :loss".split(),
    "allow-downgrade": "iterations optstop target taget".split(),
    "urgency": "0 10 7 7.5 10.1 -1 -0 +3 nan inf 1e1 1e2 0x5 high".split(),
    "gpus": "4 2..8 8..2 2...8 2-8 0 1..10000 1..10001 ..4 4.. 4..4 a100:4".split(),
    "checkpoint": [
        *"""USR1 SIGUSR1 usr1 USR1:batch USR2:steps TERM:full@2m file file@60 file:batch KILL 10 USR1: USR1@
        USR1:batch@0 USR1@86400 USR1@86401 USR1@24h USR1@0-01 USR1@2m:batch @60 :batch USR1:all sigfile
        INT@1h30m CONT@60x""".split(),
    ],
    "type": [
        *"resnet50 -x a/b ../.. é $(id) a;b".split(),
        "a b",
        "x" * 64,
        "x" * 65,
    ],
    "ml-job": "resnet50-run7 .hidden _x".split(),
    "params": [
        *"""25.6M 1.3B 1e6 25600000 5k 7T 1G 1e15 1e16 2000T 0 0.5 M 25.6MB -5M 25.6m 1e3K nan infM""".split(),
        *"""rows:2000 rows:2000,classes:10,operation:bubble 25.6M,rows:2k rows:2k,25.6M 25.6M, ,rows:1 rows: :5 rows
        rows:1,rows:2 rows:-1 rows:+1 rows:1e16 rows:1e15 rows:.5 rows:5.x rows:nan rows:a_b 9x:1 a-b:1 rows:1:2
        rows:5kk rows:0 x:1;y:2 a:1,b:2,c:3,d:4,e:5,f:6,g:7,h:8,i:9 rows:bubble-2.0 25.6MB,rows:1""".split(),
        "x" * 32 + ":1",
        "x" * 33 + ":1",
        "x:" + "y" * 32,
        "x:" + "y" * 33,
        "rows:1, classes:2",
        "1M , rows:3",
    ],
    "role": "worker ps PS server".split(),
    "utility": [
        *"50,0.5,12 50,0.5 50,0.5,12,1 0,1,1 101,1,1 50,,12 1,0,0 1,101,1 a,b,c 50,1e-3,1e5 ,,, ,".split(),
    ],
    "manage": "off on Off".split(),
    "urgencey": "7".split(),
    "dead-line": "2h".split(),
    "max_iterations": "9".split(),
    "xyz": "1".split(),
    "": "1".split(),
}
SETTINGS = [f"{name}={value}" for name, values in VALUES.items() for value in values]


@pytest.mark.parametrize("name", list(VALUES))
def test_check_and_parser_say_the_same_of_every_value(name: str, lua: Lua) -> None:
    for value in VALUES[name]:
        script, comment = f"#PLUG --{name}={value}\n".encode(), f"plug: {name}={value}".encode()
        assert lua.found(script, b"", NOW) == expected(script, b"", NOW), value
        assert lua.found(b"", comment, NOW) == expected(b"", comment, NOW), value


SCRIPTS = [
    b"",
    b"#PLUG",
    b"#PLUG \n#PLUG\t\n#PLUG # only a remark\n",
    b"#!/bin/sh\n\n# remark\n\t#PLUG --urgency=11\n  echo\n#PLUG --urgency=12\n",
    b"#plug --urgency=1\n#Plug in the cable\n#PLUGIN --urgency=1\n##PLUG --urgency=99\n#PLUG:--urgency=1\n",
    b"#PLUG urgency=7 -urgency=7 --urgency --urgency=7 8 --urgency=9\n",
    b"#PLUG --urgency=5\n#PLUG --urgency=6\n#PLUG --urgency=x\n",
    b"#PLUG --urgency=x\n#PLUG --urgency=6\n",
    b"#PLUG --stop=target --allow-downgrade=target\n",
    b"#PLUG --stop=target --allow-downgrade=optstop --target=loss<=1\n",
    b"#PLUG --stop=optstop --allow-downgrade=optstop\n",
    b"#PLUG --stop=optstop:val_loss --allow-downgrade=optstop\n",
    b"#PLUG --stop=optstop:val_loss --target=accuracy>=0.9\n",
    b"#PLUG --stop=optstop:purity --target=purity>=0.9 --allow-downgrade=target\n",
    b"#PLUG --stop=optstop:purity --allow-downgrade=optstop\n",
    b"#PLUG --target=accuracy >= 92 % --stop=target\n",
    b"#PLUG --allow-downgrade=target --target = 5\n",
    b"#PLUG --deadline=tomorrow 18:00 # soon\r\n#PLUG --deadline='today 23:59'\r\n",
    b'#PLUG --deadline="18:00" --type=\'x --target="loss <= 1"\n',
    b"#PLUG --urgency=7\x00 --type=\x1b[31mred --ml-job=\xff\xfe\n",
    b"#PLUG --type=\xe2\x80\x8bx --urgency=\xd9\xa3\n",
    b"\x00\n#PLUG --urgency=99\n",
    b"#PLUG --" + b"x" * 900 + b"=1\n#PLUG --type=" + b"y" * 2_000 + b"\n",
    b"#PLUG --urgency=" + b"7" * 200 + b"\n",
    b"#PLUG --bad=1\n" * 30,
    b"#PLUG --urgency=1\n" + b"#\n" * 2_100,
    b"#PLUG --urgency=1\n" + b"#\n" * 1_998 + b"#PLUG --urgency=99\n",
    b"#PLUG --urgency=1\n" + b"#\n" * 1_999,
    b"#PLUG --urgency=1\n#" + b"-" * 70_000 + b"\n#PLUG --urgency=99\n",
    b"#PLUG --urgency=1\n#" + b"-" * (65_536 - 20) + b"\n",
    b"# " + b"-" * 70_000 + b"\n#PLUG --urgency=99\n",
    b"#!/bin/sh\ncd data\n#PLUG is no directive\n\t#PLUG\t--urgency=99\n#PLUG --type=x\n",
    b"#PLUG --urgency=1\ntrue\n" + b"#\n" * 2_100,
    b"true\n#" + b"-" * 70_000 + b"\n#PLUG --urgency=99\n",
    b"# PLUG --urgency=7\n#\tplug \t --type=x\n# PLUG in the cable\n#  PLUGIN --x=1\n# PLUG--urgency=7\n",
    b"# PLUG --urgency=7\n" * 30,
    b"#PLUG --stop=optstop:val_loss --gpus=1..4\n#PLUG --allow-downgrade=optstop\n",
    b"#PLUG --allow-downgrade=optstop --gpus=4..4\n",
    b"#PLUG --stop=optstop --max-iterations=90 --gpus=1..4 --checkpoint=file\n",
]
COMMENTS = [
    b"",
    b"plug:",
    b"plug: 7",
    b" plug:urgency=11 deadline=tomorrow 18:00 --stop=targt -role=ps",
    b"my job plug: urgency=11",
    b"plug: target=accuracy >= 0.9 stop=target",
    b"plug: stop=target",
    b"plug: urgency=7\nline 1: forged",
    b"plug: " + b"x" * 2_000,
    b"plug urgency=7 deadline=2h",
    b" Plug:\t--urgency=7",
    b"plug the leak",
    b"plugged urgency=7",
    b"plug: stop=optstop",
]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("comment", COMMENTS)
def test_check_and_parser_say_the_same_of_a_job(script: bytes, comment: bytes, lua: Lua) -> None:
    assert lua.found(script, comment, NOW) == expected(script, comment, NOW)


WORDS = st.one_of(
    st.sampled_from(SETTINGS).map(lambda setting: f"--{setting}".encode()),
    st.sampled_from(SETTINGS).map(str.encode),
    st.sampled_from(
        [b"#", b"--", b"=", b"tomorrow", b">=", b"'", b"\t", b"\n", b"\r\n", b"\n#PLUG ", b"\n#PLUG --", b"plug:"]
    ),
    st.binary(max_size=8),
    st.text("0123456789.:-+eETZdhms, kM<=>@", max_size=12).map(lambda value: b"--deadline=" + value.encode()),
    st.tuples(st.sampled_from(list(VALUES)), st.text("0123456789.:-+eE ,kMs<=>@_ax", max_size=12)).map(
        lambda pair: f"--{pair[0]}={pair[1]}".encode()
    ),
    st.text("abcdefghijklmnopqrstuvwxyz-_", max_size=16).map(lambda name: f"--{name}=1".encode()),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, max_size=8), comment=st.lists(WORDS, max_size=4), now=st.integers(NOW, NOW + 400 * 86_400))
def test_check_and_parser_say_the_same_of_any_words(
    words: list[bytes], comment: list[bytes], now: int, lua: Lua
) -> None:
    script, said = b"#PLUG " + b" ".join(words), b"plug: " + b" ".join(comment)
    assert lua.found(script, said, now) == expected(script, said, now)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_check_never_throws_whatever_a_job_is(interpreter: str) -> None:
    code = f"""
        local check = dofile("{CHECK}").check
        assert(check({{}}) == nil)
        assert(check(nil) == nil)
        assert(check({{script = 7, comment = {{}}}}) == nil)
        assert(check({{script = "#PLUG --urgency=7"}}) == nil)
        assert(string.find(check({{script = "#PLUG --urgency=77"}}), "line 1: --urgency=77", 1, true))
        assert(string.find(check({{comment = "plug: urgency=77"}}), "comment: urgency=77", 1, true))
    """
    subprocess.run([interpreter, "-e", code], check=True)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_warning_says_what_has_no_effect_here(interpreter: str, tmp_path: Path) -> None:
    copy, site = tmp_path / "slurmplug.lua", tmp_path / "site.lua"
    copy.write_text(CHECK.read_text())

    def said(site_lua: str, job: str) -> str:
        site.write_text(site_lua)
        code = f'io.write(dofile("{copy}").warning({job}) or "nothing")'
        return subprocess.run([interpreter, "-e", code], check=True, capture_output=True, text=True).stdout

    elastic = '{script = "#PLUG --gpus=1..4 --checkpoint=file", requeue = %d}'
    for anything in ("", "broken (", "return 7", "return {}"):
        assert said(anything, elastic % 1) == "nothing"
    assert "line 1: --gpus=1..4: with --no-requeue the" in said("", elastic % 0)
    here = said(submission.site_lua(Config()), elastic % 1)
    assert "line 1: --gpus=1..4: the number of GPUs is not changed: the mode for resizes is observe here" in here
    assert "with --no-requeue" not in said(submission.site_lua(Config()), elastic % 0)
    for job in ("{}", "nil", "{script = 7, comment = {}}", '{script = "#PLUG --gpus=1..4 --manage=off"}'):
        assert said("", job) == "nothing"


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_job_with_a_utility_is_held_until_the_file_is_removed(interpreter: str, tmp_path: Path) -> None:
    copy = tmp_path / "slurmplug.lua"
    copy.write_text(CHECK.read_text())
    code = f"""
        local hold = dofile("{copy}").hold
        local function priority(script, comment)
            local job = {{script = script, comment = comment}}
            assert(hold(job) == nil)
            return job.priority
        end
        assert(priority("#PLUG --utility=50,0.5,12") == 0)
        assert(priority("#PLUG --urgency=7") == nil)
        assert(priority("true", "plug: --utility=50,0.5,12") == 0)
        -- whom the daemon never lets go: an interactive job, and one that is to be left alone
        assert(priority(nil, "plug: --utility=50,0.5,12") == nil)
        assert(priority("#PLUG --utility=50,0.5,12", "plug: --manage=off") == nil)
        os.remove("{copy}")
        assert(priority("#PLUG --utility=50,0.5,12") == nil)
    """
    subprocess.run([interpreter, "-e", code], check=True)


@pytest.mark.parametrize("part", generated.GENERATED, ids=lambda part: part.path)
def test_what_is_made_from_the_table_is_up_to_date(part: generated.Generated) -> None:
    text = (ROOT / part.path).read_text()
    assert part.renewed(text) == text, "run: python -m slurmplug.directives.generated"
