"""What a cycle needs, played by the simulation."""
