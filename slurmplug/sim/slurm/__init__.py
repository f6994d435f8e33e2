"""A simulated Slurm that starts jobs: multifactor priority and backfill."""
