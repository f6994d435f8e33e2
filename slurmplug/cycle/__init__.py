"""One scheduling cycle: read, forecast, decide, guard, record, apply."""
