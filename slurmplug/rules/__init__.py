"""What may be: bounds on claims and plans, and how what is decided is written. Pure."""
