"""The tables of the configuration of what is served to others: reports, metrics, web pages."""

import ipaddress
from contextlib import suppress
from typing import Annotated

from pydantic import AfterValidator, Field

from slurmplug.config.section import AbsolutePath, Section

_LISTEN = r"^(|[A-Za-z0-9.-]{1,253}:[0-9]{1,5}|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5})$"
_URL = r"^(|http://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}/?)$"


def _with_port(address: str) -> str:
    if address and int(address.rstrip("/").rpartition(":")[2]) > 65_535:
        raise ValueError("a port must be at most 65535")
    return address


def _on_loopback(address: str) -> str:
    """Who is asking is believed of a proxy on this host, so nobody else may reach the port."""
    host = address.rpartition(":")[0].strip("[]")
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return address
    if host == "localhost":
        return address
    raise ValueError(f"must be on loopback, as 127.0.0.1:6832, not {address!r}: a reverse proxy serves others")


class Endpoint(Section):
    """Reports for users on login nodes: the daemon serves them, and commands that cannot read the ledger ask it."""

    listen: Annotated[str, AfterValidator(_with_port)] = Field(
        "",
        pattern=_LISTEN,
        description="HOST:PORT to listen on, [ADDRESS]:PORT for IPv6; if empty, no reports are served",
    )
    url: Annotated[str, AfterValidator(_with_port)] = Field(
        "", pattern=_URL, description="http://CONTROLLER:PORT, the endpoint that commands use"
    )
    clusters: dict[str, Annotated[str, Field(pattern=_URL), AfterValidator(_with_port)]] = Field(
        {}, description="the endpoints of clusters by their names, for `--clusters` of the reports"
    )
    munge_socket: AbsolutePath | None = Field(None, description="munged's socket; if not set, its default")
    requests_per_minute: Annotated[int, Field(gt=0)] = Field(
        60, description="most requests of a user per minute, also at once"
    )


class Metrics(Section):
    """Metrics for Prometheus, of a process beside the daemon's; needs prometheus-client."""

    listen: Annotated[str, AfterValidator(_with_port)] = Field(
        "",
        pattern=_LISTEN,
        description="HOST:PORT to listen on, as 127.0.0.1:6831; whoever reaches it sees how many GPUs each user has; "
        "if empty, there are no metrics",
    )


class Web(Section):
    """Web pages, served by `slurmplug web`; needs Flask and waitress."""

    listen: Annotated[str, AfterValidator(_with_port), AfterValidator(_on_loopback)] = Field(
        "127.0.0.1:6832",
        pattern=_LISTEN.replace("|", "", 1),
        description="HOST:PORT of loopback to listen on; a reverse proxy on this host serves others",
    )
    user_header: str = Field(
        "",
        pattern=r"^(|[A-Za-z][A-Za-z0-9-]{0,99})$",
        description="the header in which the proxy names whom it has authenticated, as X-Remote-User, by an account "
        "of this host; if empty, everybody sees what Slurm shows to anybody",
    )
