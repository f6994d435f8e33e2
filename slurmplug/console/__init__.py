"""Tables and times as shown on a terminal."""
