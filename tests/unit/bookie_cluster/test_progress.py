"""How lists of ledgers are cut into nodes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from activities.bookie_cluster.progress import NODE_BYTES, pack


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=200))
def test_lists_survive(items: list[tuple[int, int]]) -> None:
    """All items stand in the nodes, in their order."""
    nodes = [json.loads(node) for node in pack(items)]

    assert [tuple(item) for node in nodes for item in node] == items


def test_nodes_are_filled_up_to_their_limit() -> None:
    """No node is larger than its limit, and none but the last one has space for another item."""
    items = [(number << 32, 1 << 40) for number in range(40_000)]
    nodes = list(pack(items))
    longest = max(len(json.dumps(item, separators=(",", ":"))) for item in items)

    assert len(nodes) > 2
    assert max(map(len, nodes)) <= NODE_BYTES
    assert min(map(len, nodes[:-1])) > NODE_BYTES - longest - 2
