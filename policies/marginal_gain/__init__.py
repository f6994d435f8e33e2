"""GPUs to the job that gains most by them: shared by SLAQ, Optimus and MLFS."""
