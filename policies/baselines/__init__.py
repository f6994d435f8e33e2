"""The schedulers that the papers compare with."""
