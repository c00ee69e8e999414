"""The double of a broker changes the attribution of a cursor node and nothing else."""

from __future__ import annotations

import pytest

from tests.support.bookie_cluster import cursor_node
from tests.unit.clients.test_pulsar_formats import COMPACTION_OPEN, DELAYED


@pytest.mark.parametrize("node", [COMPACTION_OPEN, DELAYED])
def test_only_the_attribution_changes(node: bytes) -> None:
    """Bytes of real nodes: the attribution comes or changes, and all else stays (I9)."""
    there = cursor_node.attributed(node, "B")
    assert cursor_node.properties(there) == {**cursor_node.properties(node), cursor_node.ATTRIBUTION: "B"}
    assert cursor_node.without_properties(there) == cursor_node.without_properties(node)
    assert cursor_node.attributed(cursor_node.attributed(there, "A"), "B") == there
