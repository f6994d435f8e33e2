"""The settings of OASiS."""

from dataclasses import dataclass
from typing import Literal

from policies.oasis.prices import Ceiling


@dataclass(frozen=True)
class OASiSSettings:
    """The settings of OASiS. slot, restart: seconds. horizon: slots that a schedule may take."""

    slot: float = 600.0
    horizon: int = 100
    restart: float = 0.0
    """what a change of GPUs costs of a slot"""
    speed: Literal["work", "forecast"] = "work"
    """by GPUs: every worker does as much, as in the paper, or as forecast where it is"""
    ceiling: Ceiling = "work"
    """the upper price bound: "paper" takes a job's utility for one worker-slot, which leaves the last part of a
    cluster to nobody, "work" for each of those that its work takes"""
    revisions: int = 120
    """offers made at most to find a plan of more utility where jobs contend; 0: admissions stand, as published"""
    backfill: bool = True
    """GPUs that no schedule takes in this slot are lent: to jobs admitted, then to those turned down"""
    pool: bool = True
    """nodes that are alike are one server; otherwise each has its own prices"""
    remember: int = 500
    """jobs that the price bounds are taken from"""

    def __post_init__(self) -> None:
        if self.slot <= 0 or self.horizon < 1 or self.remember < 1:
            raise ValueError("slot, horizon and remember are positive")
        if not 0 <= self.restart < self.slot:
            raise ValueError("a restart takes less than a slot")
        if self.ceiling not in ("paper", "work"):
            raise ValueError(f"ceiling is paper or work, not {self.ceiling!r}")
        if self.speed not in ("work", "forecast"):
            raise ValueError(f"speed is work or forecast, not {self.speed!r}")
        if self.revisions < 0:
            raise ValueError("revisions is not negative")
