"""The tables of the configuration of what is served to others: reports, metrics, web pages."""

from contextlib import suppress
from typing import Annotated, TypeAlias

from slurmplug.config.section import Section, setting
from slurmplug.config.values import AbsolutePath, Positive, matching

_ADDRESS = r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}"


def _with_port(address: str) -> str:
    if address and int(address.rstrip("/").rpartition(":")[2]) > 65_535:
        raise ValueError("a port must be at most 65535")
    return address


def _on_loopback(address: str) -> str:
    """Who is asking is believed of a proxy on this host, so nobody else may reach the port."""
    host = address.rpartition(":")[0].strip("[]")
    import ipaddress  # noqa: PLC0415  few files have an address

    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return address
    if host == "localhost":
        return address
    raise ValueError(f"must be on loopback, as 127.0.0.1:6832, not {address!r}: a reverse proxy serves others")


_HOST_PORT = "HOST:PORT, or [ADDRESS]:PORT for IPv6"
Listen: TypeAlias = Annotated[str, matching(f"(|{_ADDRESS})", _HOST_PORT), _with_port]
Url: TypeAlias = Annotated[str, matching(f"(|http://{_ADDRESS}/?)", "http://CONTROLLER:PORT"), _with_port]


class Endpoint(Section):
    """Reports for users on login nodes: the daemon serves them, and commands that cannot read the ledger ask it."""

    listen: Listen = setting(
        "", description="HOST:PORT to listen on, [ADDRESS]:PORT for IPv6; if empty, no reports are served"
    )
    url: Url = setting("", description="http://CONTROLLER:PORT, the endpoint that commands use")
    clusters: dict[str, Url] = setting(
        default_factory=dict, description="the endpoints of clusters by their names, for `--clusters` of the reports"
    )
    munge_socket: AbsolutePath | None = setting(None, description="munged's socket; if not set, its default")
    requests_per_minute: Positive = setting(60, description="most requests of a user per minute, also at once")


class Metrics(Section):
    """Metrics for Prometheus, of a process beside the daemon's; needs prometheus-client."""

    listen: Listen = setting(
        "",
        description="HOST:PORT to listen on, as 127.0.0.1:6831; whoever reaches it sees how many GPUs each user has; "
        "if empty, there are no metrics",
    )


class Web(Section):
    """Web pages, served by `slurmplug web`; needs Flask and waitress."""

    listen: Annotated[str, matching(_ADDRESS, _HOST_PORT), _with_port, _on_loopback] = setting(
        "127.0.0.1:6832", description="HOST:PORT of loopback to listen on; a reverse proxy on this host serves others"
    )
    user_header: Annotated[str, matching("(|[A-Za-z][A-Za-z0-9-]{0,99})", "the name of a header, as X-Remote-User")] = (
        setting(
            "",
            description="the header in which the proxy names whom it has authenticated, as X-Remote-User, by an "
            "account of this host; if empty, everybody sees what Slurm shows to anybody",
        )
    )
