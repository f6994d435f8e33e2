"""The daemon's log as lines of JSON, for programs that collect logs."""

import json
import logging


class JsonLines(logging.Formatter):
    """One JSON object a line: `time` (seconds since the epoch), `level`, `message`, and what `event_fields` adds."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {"time": round(record.created, 3), "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps({**fields, **getattr(record, "event_fields", {})})


def use_json_lines() -> None:
    """From now on, all handlers of this process write JSON."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines())
