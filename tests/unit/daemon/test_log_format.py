"""The log as lines of JSON."""

import json
import logging
import sys

from slurmplug.daemon.log_format import JsonLines


def test_a_line_is_one_json_object_with_the_events_fields_and_the_exception() -> None:
    try:
        int("no\nnumber")
    except ValueError:
        record = logging.LogRecord("slurmplug", logging.INFO, "", 0, "stop of job %d", (7,), sys.exc_info())
    record.event_fields = {"event": "stop", "job": 7}
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["message"], found["event"], found["job"]) == ("INFO", "stop of job 7", "stop", 7)
    assert found["exception"].startswith("Traceback")
    assert found["time"] == round(record.created, 3)
