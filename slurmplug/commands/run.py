"""`slurmplug run`: runs a program that cannot be changed, and reports its progress from what it prints."""

from slurmplug.commands.forwarded import Forwarded

run = Forwarded("run")
