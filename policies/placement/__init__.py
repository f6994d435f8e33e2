"""What several policies share to decide how many GPUs a job gets, and where."""
