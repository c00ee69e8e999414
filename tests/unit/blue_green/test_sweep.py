"""How often brokers look for topics to move, and how long a flip waits for them."""

from __future__ import annotations

import pytest

from activities.blue_green.checks.clusters import check_flip_timeout
from activities.lifecycle.precheck import Findings


@pytest.mark.parametrize(
    ("sweep", "limit", "refused"), [(1, 120, False), (59, 120, False), (60, 120, True), (5, 2, True)]
)
def test_a_sweep_that_is_too_slow(sweep: int, limit: int, *, refused: bool) -> None:
    """A broker that may need more than `flip_timeout` for two looks is refused, with both values in the cure."""
    findings = Findings()
    check_flip_timeout(findings, "broker-1", {"clusterMigrationCheckDurationSeconds": str(sweep)}, limit)
    assert [blocker.code for blocker in findings.blockers] == ["BLUE_SLOW_SWEEP"] * refused
    assert all(f"more than {2 * sweep} s" in blocker.cure for blocker in findings.blockers)
