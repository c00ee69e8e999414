"""What stands for brokers that change a cursor's node does it as our own code would, which it does not use."""

from __future__ import annotations

import pytest

from clients.pulsar.attribution import set_cursor_attribution
from tests.support.bookie_cluster import cursor_node
from tests.unit.clients.test_pulsar_formats import COMPACTION_OPEN, DELAYED


@pytest.mark.parametrize("node", [COMPACTION_OPEN, DELAYED])
def test_protobuf_writes_the_same_bytes(node: bytes) -> None:
    """Bytes of real nodes: both encoders put the attribution in the same place, and change nothing else (I9)."""
    there = cursor_node.attributed(node, "B")
    assert there == set_cursor_attribution(node, cursor_node.ledger_of(node), "B")
    assert cursor_node.properties(there) == {**cursor_node.properties(node), cursor_node.ATTRIBUTION: "B"}
    assert cursor_node.without_properties(there) == cursor_node.without_properties(node)
    assert cursor_node.attributed(cursor_node.attributed(there, "A"), "B") == there
