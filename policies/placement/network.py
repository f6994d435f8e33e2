"""The use of the nodes' networks, as jobs report it, and which decisions the report of one job may bear on.

Slurm measures no network, so a node's use is known only from the jobs there, any of which may report what it likes. A
job leaves a node by its own report. A node is closed to a job by the reports of jobs of the same user only; those of
others merely make it the last choice.
"""

from functools import cached_property

import numpy as np

from policies.snapshot import Snapshot
from predictors.arrays import Floats, Ints


class NetworkReports:
    """The shares of the networks' bandwidth in use that the jobs of a snapshot report."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nothing = np.zeros(len(snapshot.nodes.names))

    @cached_property
    def _reports(self) -> tuple[Ints, Ints, Floats]:
        """Row, node and share of each allocation whose job reports that its nodes' networks are in use."""
        row, node, _ = self._snapshot.runs_on.T
        shares = self._snapshot.jobs.network[row]
        used = shares > 0
        return row[used], node[used], shares[used]

    @cached_property
    def by_anyone(self) -> Floats:
        """(nodes,) the greatest share that any job there reports; 0 where none does."""
        _, node, share = self._reports
        found = self._nothing.copy()
        np.maximum.at(found, node, share)
        return found

    def by_user(self, user: str) -> Floats:
        """(nodes,) the greatest share that a job of this user there reports; 0 where none does."""
        place = self._users.get(user)
        return self._nothing if place is None else self._table[place]

    @cached_property
    def _users(self) -> dict[str, int]:
        return {str(user): place for place, user in enumerate(self._grouped[0])}

    @property
    def _table(self) -> Floats:
        return self._grouped[1]

    @cached_property
    def _grouped(self) -> tuple[list[str], Floats]:
        """The users who report, and (users, nodes) the greatest share that each reports."""
        row, node, share = self._reports
        names, user = np.unique(self._snapshot.jobs.user[row], return_inverse=True)
        table = np.zeros((len(names), len(self._nothing)))
        np.maximum.at(table, (user, node), share)
        return names.tolist(), table
