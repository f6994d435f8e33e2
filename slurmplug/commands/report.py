"""`slurmplug report`: one report of a job, from a shell script or any program that can start another."""

from slurmplug.commands.forwarded import Forwarded

report = Forwarded("report")
