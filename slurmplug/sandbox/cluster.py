"""A throwaway real Slurm cluster on this machine, with all of its state in one folder."""

import re
import shutil
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from types import TracebackType
from typing import Self, TypeVar

from slurmplug.errors import SandboxError
from slurmplug.sandbox import accounts, boot
from slurmplug.sandbox.daemons import Daemons
from slurmplug.sandbox.errors import CommandFailed, WaitTimeout
from slurmplug.sandbox.layout import Layout
from slurmplug.sandbox.ports import free_ports
from slurmplug.sandbox.render import Ports
from slurmplug.sandbox.spec import ClusterSpec

T = TypeVar("T")

_POLL = 0.05
_LAST_LINES = 20
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:]*)=(.*?)(?=\s+[A-Za-z][\w/:]*=|\s*$)", re.MULTILINE)


class Sandbox:
    """munged, MariaDB, slurmdbd, slurmctld and some `slurmd -N`, on loopback, with ports and a name of their own.

    Nothing of another Slurm, MariaDB or munge on the machine is touched. Slurm's daemons listen on every interface, for
    they bind to what the host's name resolves to or not at all, but believe only who has the sandbox's own munge key.

    Use it as a context manager, or `up` here and `Sandbox.attach(folder).down()` from any other process. When the body
    of the `with` raises, the logs stay.

    operator     the account of slurmplug's daemon: an Operator in slurmdbd and nothing more.
    researchers  accounts that submit jobs: the first and third of the Slurm account `vision`, the second of `language`.
    """

    operator = accounts.OPERATOR
    researchers = accounts.RESEARCHERS

    def __init__(self, spec: ClusterSpec | None = None, folder: Path | None = None) -> None:
        """Start nothing yet.

        Args:
            spec: the cluster; None for four nodes of four GPUs.
            folder: for all of its state; None for a temporary one below $TMPDIR. A folder that other users cannot enter
                becomes a link to one below /tmp.
        """
        self.spec = spec or ClusterSpec()
        self.requested_folder = folder.absolute() if folder else None
        self._layout: Layout | None = None
        self._daemons: Daemons | None = None

    @classmethod
    def attach(cls, folder: Path) -> "Sandbox":
        """The sandbox that another process started in `folder`. Raises SandboxError if none is there.

        Its `spec` is not stored, and is the default one here.
        """
        found = cls(folder=folder)
        found._layout = Layout(folder.resolve())
        found._daemons = Daemons.load(found._layout)
        return found

    def up(self) -> None:
        """Start everything; returns when every node is idle. Where that fails, whatever had started is ended again.

        Raises:
            SandboxError: it cannot run here, or a daemon did not start in time; the logs are kept.
        """
        accounts.require_installed(self.spec.slurm)
        self._layout = Layout(accounts.claim_folder(self.requested_folder))
        try:
            with free_ports(3 + len(self.spec.nodes)) as (mariadbd, slurmdbd, slurmctld, *nodes):
                ports = Ports(mariadbd, slurmdbd, slurmctld, tuple(nodes))
                self._daemons = boot.prepare(self.spec, self._layout, ports)
                boot.start(self.spec, self._layout, self._daemons)
            self.wait(self._all_idle, what="every node to become idle")
        except BaseException as error:
            self.down(keep_logs=True)
            error.add_note(f"The sandbox's logs are in {self.logs}")
            raise

    def down(self, *, keep_logs: bool = False) -> None:
        """End every daemon and every process of every job, then remove the folder.

        `keep_logs` keeps the logs, the configuration, the spool and what jobs wrote; another `down` removes these.
        """
        if self._daemons:
            self._daemons.end_all()
        if keep_logs:
            self.layout.remove_bulk()
            return
        shutil.rmtree(self.folder)
        if self.requested_folder and self.requested_folder.is_symlink():
            self.requested_folder.unlink()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.down(keep_logs=error is not None)
        if error is not None:
            error.add_note(f"The sandbox's logs are in {self.logs}")

    @property
    def layout(self) -> Layout:
        """The paths in the folder. Raises SandboxError before `up`."""
        if self._layout is None:
            raise SandboxError("the sandbox is not up")
        return self._layout

    @property
    def daemons(self) -> Daemons:
        """The daemons by name. Raises SandboxError before `up`."""
        if self._daemons is None:
            raise SandboxError("the sandbox is not up")
        return self._daemons

    @property
    def folder(self) -> Path:
        """The folder with all of the state."""
        return self.layout.folder

    @property
    def logs(self) -> Path:
        """The folder with the logs of the daemons."""
        return self.layout.logs

    @property
    def spool(self) -> Path:
        """The progress spool: `reports`, where every job may add files, and `requests`, where only the operator may."""
        return self.layout.spool

    @property
    def name(self) -> str:
        """ClusterName."""
        return self.daemons.cluster

    def home(self, user: str) -> Path:
        """The folder in which a user's commands run and jobs write their output."""
        return self.layout.home(user)

    def env(self, user: str) -> dict[str, str]:
        """The whole environment of a user's commands; nothing of the caller's, such as SQUEUE_FORMAT, is added."""
        return {
            "PATH": self.daemons.path,
            "LC_ALL": "C",
            "USER": user,
            "LOGNAME": user,
            "HOME": str(self.home(user)),
            "SHELL": "/bin/sh",
            "SLURM_CONF": str(self.layout.slurm_conf),
            "SLURMPLUG_SPOOL": str(self.spool),
        }

    def run(
        self,
        user: str,
        argv: Sequence[str],
        *,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60,
    ) -> CompletedProcess[str]:
        """Run a command as a user, in their home, with `env` added to their environment, and return its output.

        Raises CommandFailed where `check` is set and the command does not exit with 0.
        """
        answer = accounts.run_as(
            user,
            list(argv),
            env={**self.env(user), **(env or {})},
            cwd=self.home(user),
            stdin=input,
            timeout=timeout,
        )
        if check and answer.returncode != 0:
            raise CommandFailed(f"{user}: {' '.join(argv)}: status {answer.returncode}: {answer.stderr.strip()}")
        return answer

    def sbatch(self, user: str, script: str, *args: str) -> int:
        """Submit a script (with its #! line) and return the job's id. Raises CommandFailed with sbatch's message."""
        return int(self.run(user, ["sbatch", "--parsable", *args], input=script).stdout.split(";")[0])

    def job(self, job_id: int | str) -> dict[str, str]:
        """The fields of `scontrol show job` as root sees them; of several elements of an array, those of the first.

        In every release, `TRES` is what the job has, or requests while it is pending. For tests only: a job whose name
        or comment contains `Field=` can forge fields.
        """
        return job_fields(self.run("root", ["scontrol", "show", "job", str(job_id)]).stdout)

    def wait(self, predicate: Callable[[], T], timeout: float = 30, what: str = "") -> T:
        """Poll until `predicate` returns something true; returns that. Raises WaitTimeout after `timeout` seconds."""
        limit = time.monotonic() + timeout
        while not (found := predicate()):
            if time.monotonic() > limit:
                raise WaitTimeout(f"waited {timeout:g} s for {what or predicate}; logs in {self.logs}")
            time.sleep(_POLL)
        return found

    def wait_job(self, job_id: int | str, states: str | Collection[str], timeout: float = 30) -> dict[str, str]:
        """Wait until a job is in one of the states (e.g. "RUNNING") and return its fields.

        Raises WaitTimeout, with what slurmctld logged about the job and the end of the job's own output.
        """
        wanted = {states} if isinstance(states, str) else set(states)
        last: dict[str, str] = {}

        def arrived() -> bool:
            last.update(self.job(job_id))
            return last["JobState"] in wanted

        try:
            self.wait(arrived, timeout)
        except WaitTimeout as error:
            state = f"{last['JobState']} ({last.get('Reason')})"
            raise WaitTimeout(
                f"job {job_id} is {state}, not {' or '.join(wanted)}, after {timeout:g} s; logs in {self.logs}"
                + self._logged(last)
            ) from error
        return last

    def _logged(self, job: Mapping[str, str]) -> str:
        """The end of what slurmctld logged about a job, given by its fields, and of the job's output."""
        logged = (self.logs / "slurmctld.log").read_text(errors="replace").splitlines()
        about = [line for line in logged if re.search(rf"\bJobId={job['JobId']}\b", line)]
        output = Path(job.get("StdOut", ""))
        printed = output.read_text(errors="replace").splitlines() if output.is_file() else ["(no file)"]
        parts = {"slurmctld logged": about, f"its output {output}": printed}
        return "".join("\n".join((f"\n{title}:", *lines[-_LAST_LINES:])) for title, lines in parts.items())

    def start(self, daemon: str) -> None:
        """Start a daemon (munged, mariadbd, slurmdbd, slurmctld, n1, ...) and wait until it answers."""
        self.daemons.spawn(daemon)
        self.daemons.await_ready(daemon)

    def stop(self, daemon: str) -> None:
        """End a daemon by SIGTERM, as a service manager would."""
        self.daemons.end(daemon, signal.SIGTERM)

    def kill(self, daemon: str) -> None:
        """End a daemon by SIGKILL. slurmctld forgets what it had not saved, which may be the last five seconds."""
        self.daemons.end(daemon, signal.SIGKILL)

    def restart(self, daemon: str) -> None:
        """End a daemon by SIGTERM, start it again and wait until it answers."""
        self.stop(daemon)
        self.start(daemon)

    def clear(self, timeout: float = 30) -> None:
        """Start daemons that do not run, remove all jobs, reservations and files in the spool, and resume every node.

        Accounting, and with it fairshare, still counts what ran before.
        """
        for name in self.daemons.names:
            if not self.daemons.alive(name):
                self.start(name)
        self.wait(self._no_jobs, timeout, "the queue to become empty")
        for reservation in self._lines("scontrol", "show", "reservation", "-o"):
            if reservation.startswith("ReservationName="):
                self.run("root", ["scontrol", "delete", reservation.split()[0]])
        if not self._all_idle():
            self.run("root", ["scontrol", "update", "NodeName=ALL", "State=RESUME"], check=False)
            self.wait(self._all_idle, timeout, "every node to become idle")
        for folder in ("reports", "requests"):
            for path in (self.spool / folder).iterdir():
                path.unlink()

    def _no_jobs(self) -> bool:
        jobs = self._lines("squeue", "-h", "-a", "-r", "-o", "%i %t")
        if cancel := {job_id for job_id, state in map(str.split, jobs) if state != "CG"}:
            self.run("root", ["scancel", "--quiet", *cancel], check=False)
        return not jobs

    def _all_idle(self) -> bool:
        states = self._lines("sinfo", "-h", "-a", "-N", "-o", "%T")
        return bool(states) and set(states) == {"idle"}

    def _lines(self, *argv: str) -> list[str]:
        return self.run("root", argv).stdout.splitlines()


def job_fields(shown: str) -> dict[str, str]:
    """The fields by name, of the first job in the output of `scontrol show job`."""
    fields = dict(_FIELD.findall(shown.partition("\n\n")[0]))
    if "ReqTRES" in fields:  # 23.02 and later
        held = fields.get("AllocTRES", "(null)")
        fields["TRES"] = fields["ReqTRES"] if held == "(null)" else held
    return fields
