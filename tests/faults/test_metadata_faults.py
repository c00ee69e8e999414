"""Kills, freezes and late returns in the metadata store migration, at every boundary of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.faults.conftest import StackPool
from tests.faults.rounds import Round
from tests.faults.site import FaultySite
from tests.faults.trial import Trial, line


@pytest.mark.timeout(600)
def test_round(round_: Round, site: FaultySite, stacks: StackPool, tell: Callable[[str], None]) -> None:
    """Whatever is hit, the migration completes or fails and can be started again; writes and messages go on."""
    stack = stacks.take()
    begun = time.monotonic()
    with Trial(site, stack) as trial:
        try:
            trial.run(round_)
            stacks.prepare()
            told = line(round_, trial, begun)
            trial.check()
            if not trial.completed:
                trial.migrate_again()
            trial.settle()
        except BaseException:
            tell(f"{line(round_, trial, begun)}  BROKEN")
            raise
        tell(told)
