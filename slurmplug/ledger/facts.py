"""The facts of a reason as the ledger stores them."""

from collections.abc import Mapping
from typing import Any

from policies.plan import Fact, OtherJob
from policies.snapshot import JobKey


def stored_facts(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """The facts of a reason as plain values: another job as its key and its score."""
    return {
        name: {"job": [*fact.job], "score": fact.score} if isinstance(fact, OtherJob) else fact
        for name, fact in facts.items()
    }


def facts_from(stored: Mapping[str, Any]) -> dict[str, Fact]:
    """The facts that `stored_facts` stored."""
    return {
        name: OtherJob(JobKey(*fact["job"]), fact["score"]) if isinstance(fact, Mapping) else fact
        for name, fact in stored.items()
    }
