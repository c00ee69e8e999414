"""The list of all mutants."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.mutants import (
    blue_green,
    bookie_cluster,
    metadata_store,
    scalable_client,
    scalable_topic,
    shared,
    topic_controller,
)
from tests.mutants.marks import Stale
from tests.mutants.mutant import Mutant

MUTANTS = (
    *shared.MUTANTS,
    *metadata_store.MUTANTS,
    *bookie_cluster.MUTANTS,
    *blue_green.MUTANTS,
    *scalable_topic.MUTANTS,
    *scalable_client.MUTANTS,
    *topic_controller.MUTANTS,
)


def chosen(pattern: str) -> list[Mutant]:
    """Return the mutants whose names match a pattern, in which `*` matches any text.

    Raises:
        Stale: there is none.
    """
    matching = [mutant for mutant in MUTANTS if fnmatchcase(mutant.name, pattern)]
    if not matching:
        raise Stale(f"no mutant is called {pattern!r}; names are {MUTANTS[0].name} and the like, * matches any text")
    return matching
