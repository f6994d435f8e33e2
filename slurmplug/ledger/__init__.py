"""The daemon's ledger: the SQLite file, and all SQL of the project."""
