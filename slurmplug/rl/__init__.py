"""Training of policies that learn, on simulations. The libraries that it alone needs are the extra `rl`."""
