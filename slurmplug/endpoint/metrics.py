"""The metrics for operators: fetched from the process that serves them on a port of its own."""

from http.client import HTTPConnection, HTTPException

from slurmplug.errors import EndpointError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""of Prometheus' text format"""
SECONDS = 10.0
MOST_BYTES = 64 << 20


def fetched(listen: str) -> bytes:
    """The metrics in Prometheus' text format. listen: as `metrics.listen`. Raises EndpointError."""
    if not listen:
        raise EndpointError("there are no metrics: metrics.listen is not set on the controller")
    host, _, port = listen.rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=SECONDS)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read(MOST_BYTES)
    except (OSError, HTTPException) as error:
        raise EndpointError(f"the metrics cannot be had at the moment: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise EndpointError(f"the metrics cannot be had at the moment: status {response.status}")
    return text
