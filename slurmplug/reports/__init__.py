"""What the commands report of jobs and of the daemon, from the ledger; all sentences are made here."""
