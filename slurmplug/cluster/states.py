"""Slurm's states of jobs."""

LIVE_STATES = frozenset(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD "
    "SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED".split()
)
"""Slurm's long names of the states that a job leaves again (squeue(1), JOB STATE CODES)."""
