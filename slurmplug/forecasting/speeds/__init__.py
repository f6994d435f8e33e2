"""How fast jobs train by GPUs and nodes: from the step times that were seen to a fan for each job of a snapshot.

`seen_speeds` has what was seen, `speed_tables` how jobs of a kind scale by it, `paces`, `kind_paces` and `other_types`
the level of a job and of a type of GPU, `speed_fans` the result.
"""
