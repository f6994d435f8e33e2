"""The endpoint's process: what users ask for costs the daemon nothing, and ends with it.

The daemon starts it, and another one when it has ended. It opens the ledger for reading only, and passes changes of
directives to the daemon.
"""

import logging
import os
import select
from collections.abc import Callable

from slurmplug.cluster.site_client import SiteClient
from slurmplug.config.schema import Config
from slurmplug.endpoint import changes
from slurmplug.endpoint.changes import Answered, ChangesByDaemon, Wanted
from slurmplug.endpoint.fair_queue import FairQueue
from slurmplug.endpoint.report_makers import ReportMaker, ReportMakerProcess
from slurmplug.endpoint.server import EndpointServer, EndpointThread, RequestHandler
from slurmplug.endpoint.viewers import Viewers
from slurmplug.errors import SlurmplugError
from slurmplug.processes.child import Channel
from slurmplug.processes.supervised import SupervisedProcess

NICENESS = 5
"""of the process, and of the reports for those who ask for little"""
NICER = 14
"""what is added to that for all other reports: together the most that there is"""

log = logging.getLogger(__name__)


class EndpointProcess(SupervisedProcess[Config]):
    """The process, as the daemon has it."""

    def __init__(self, config: Config, confirm: Callable[[], None]) -> None:
        """confirm: as for `changes.recorded`."""
        self._confirm = confirm
        super().__init__("endpoint", serve, config, self._answered)

    def _answered(self, config: Config, wanted: Wanted) -> Answered:
        try:
            made = changes.recorded(config.ledger.path, wanted.request, wanted.author, config.interval, self._confirm)
        except SlurmplugError as error:
            return Answered(wanted.number, error)
        return Answered(wanted.number, made)


def serve(channel: Channel, config: Config) -> None:
    """The process itself. To the daemon it sends `Wanted` changes."""
    os.nice(NICENESS)
    in_force = [config]
    by_daemon = ChangesByDaemon(channel)
    viewers = Viewers(SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout))
    lanes: list[ReportMaker] = [ReportMakerProcess("reports", 0), ReportMakerProcess("more-reports", NICER)]
    queue = FairQueue(lanes)
    handler = RequestHandler(lambda: in_force[0], viewers, queue, by_daemon)
    try:
        server = EndpointServer(config.endpoint.listen, handler)
    except OSError as error:
        log.error("endpoint.listen %s: %s; reports work on the controller only", config.endpoint.listen, error)
        while True:
            channel.receive()
    log.info("reports are served on %s", config.endpoint.listen)
    EndpointThread(server)
    poll = select.poll()
    for descriptor in (channel.fileno(), by_daemon.woken):
        poll.register(descriptor, select.POLLIN)
    while True:
        if by_daemon.woken in dict(poll.poll()):
            by_daemon.send()
        for message in channel.arrived():
            if isinstance(message, Answered):
                by_daemon.take(message)
            else:
                in_force[0] = message
