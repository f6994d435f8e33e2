"""`slurmplug daemon` whose forecasts of the queue are made in seconds for minutes, for jobs that run for seconds.

Where the daemon keeps its queue once a minute while it changes, and forecasts it every five minutes, or after a minute
where new jobs wait, this one does so every second, every five seconds, and after a second. A second of the processor
counts for what a minute is to the daemon. All else is as there.
"""

from slurmplug.ledger import budgets
from slurmplug.processes.child import Channel

PROGRAM = "from tests.bench.quick_daemon import main; main()"
"""for `python -c`: the process that trains imports this module, which a `__main__` cannot be"""
MINUTE = 60.0


def shorten() -> None:
    """Before the modules that read these times are imported."""
    budgets.INPUTS_EVERY, budgets.INPUTS_OF_CHANGES_EVERY = 300.0 / MINUTE, 60.0 / MINUTE


def train(channel: Channel, *arguments: object) -> None:
    """The process that trains: jobs are new for a few seconds."""
    shorten()
    from slurmplug.daemon import predictor_training

    predictor_training.train(channel, *arguments)  # type: ignore[arg-type]


def main() -> None:
    """The command line of slurmplug."""
    shorten()
    from slurmplug.commands import main as slurmplug
    from slurmplug.daemon import predictor_training, queue_forecasting
    from tests.bench import quick_daemon

    queue_forecasting.SHARE *= MINUTE
    predictor_training.train = quick_daemon.train  # type: ignore[assignment]
    slurmplug()
