"""The process that serves the pages, beside the daemon's: it opens the ledger for reading only."""

import logging
import os

import waitress

from slurmplug.cluster.site_client import SiteClient
from slurmplug.config.schema import Config
from slurmplug.endpoint.viewers import Viewers
from slurmplug.endpoint.web.app import make_app
from slurmplug.errors import UsageError
from slurmplug.ledger.owner import become_owner_of

NICENESS = 10
LIMITS = {
    "threads": 4,
    "connection_limit": 100,
    "max_request_header_size": 16_384,
    "max_request_body_size": 1_024,
    "channel_timeout": 10,
    "cleanup_interval": 5,
}
"""What waitress lets clients use: pages made at once, connections, bytes of a request, seconds of a silent one."""

log = logging.getLogger(__name__)


def serve(config: Config) -> None:
    """Serve the pages until the process is ended. Raises UsageError if it cannot listen, LedgerError."""
    become_owner_of(config.ledger.path.parent)
    os.nice(NICENESS)
    viewers = Viewers(SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout))
    app = make_app(config, viewers)
    listen = config.web.listen
    try:
        server = waitress.create_server(app, listen=listen, ident=None, **LIMITS)
    except OSError as error:
        raise UsageError(f"web.listen {listen}: {error.strerror}: choose another port, or end who has it") from error
    log.info("pages are served on http://%s/", listen)
    server.run()
