"""MLFS (Wang, Liu, Shen, CoNEXT 2020): MLF-H and MLF-C."""
