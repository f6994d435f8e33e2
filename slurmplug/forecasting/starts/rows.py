"""Columns of a simulation of many rows at once, of which rows are dropped as they come to their end."""

from predictors.arrays import Bools


class Rows:
    """Each attribute without an underscore is an array with an entry for each row."""

    def keep(self, kept: Bools) -> None:
        """Only these rows."""
        for name, column in vars(self).items():
            if not name.startswith("_"):
                setattr(self, name, column[kept])
