"""Mutants of the registry of bookie clusters."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_REGISTRY = ("tests/unit/clients/test_bookie_registry.py",)
_CLAIM_TELLS = "each of our writers changes the claim too, whose version is in the same transaction"
_NODES = "clients/pulsar/records/bookie_registry.py"

MUTANTS = (
    Quoted(
        "bookie-cluster/a-third-active-is-flipped-over",
        _NODES,
        "        if len(active) != 1 or not active <= wanted.keys():",
        "        if False:",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/two-active-are-flipped",
        _NODES,
        "        if len(active) != 1 or not active <= wanted.keys():",
        "        if not active & wanted.keys():",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-flip-without-the-others",
        _NODES,
        '            *(Check(f"{self.path}/{name}", entry.version) for name, entry in others.items()),\n',
        "",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-flip-of-any-version",
        _NODES,
        "clusters[name].cluster.changed(status=status), clusters[name].version)",
        "clusters[name].cluster.changed(status=status), -1)",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-lock-of-any-version",
        _NODES,
        "        return Set(self.path, node.value, node.version)",
        "        return Set(self.path, node.value, -1)",
        _REGISTRY,
        survives=_CLAIM_TELLS,
    ),
    Quoted(
        "bookie-cluster/a-registration-without-the-lock",
        _NODES,
        "registered=tuple(sorted(known))), lock, *creations])",
        "registered=tuple(sorted(known))), *creations])",
        _REGISTRY,
        survives=_CLAIM_TELLS,
    ),
    Quoted(
        "bookie-cluster/a-registration-without-the-claim",
        _NODES,
        "self.store.transaction([self.claim.renewal(registered=tuple(sorted(known))), lock, *creations])",
        "self.store.transaction([lock, *creations])",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-second-active-is-registered",
        _NODES,
        "            if cluster.status is ClusterStatus.ACTIVE and active is not None:",
        "            if False:",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-write-without-the-claim",
        _NODES,
        "        self.store.transaction([guard or self.claim.guard(), *parts])",
        "        self.store.transaction(parts)",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-node-of-any-version",
        _NODES,
        "        self._commit(Create(path, value) if node is None else Set(path, value, node.version), guard=guard)",
        "        self._commit(Create(path, value) if node is None else Set(path, value, -1), guard=guard)",
        _REGISTRY,
        survives="only the claim's holder writes these nodes, and its version is in the same transaction",
    ),
    Quoted(
        "bookie-cluster/parents-without-the-claim",
        _NODES,
        "            self.claim.require()\n            with contextlib",
        "            with contextlib",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/who-turned-back-goes-forward",
        _NODES,
        "        if found and unless and found[0].origin == unless:",
        "        if False:",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-directive-without-the-claim",
        _NODES,
        "self.store.transaction([self.claim.renewal(directed=target), lock, change])",
        "self.store.transaction([lock, change])",
        _REGISTRY,
    ),
    Quoted(
        "bookie-cluster/a-repeated-directive-is-a-new-one",
        _NODES,
        "        if found and (found[0].target, found[0].origin) == (target, origin):",
        "        if False:",
        _REGISTRY,
    ),
)
