"""ACLs of the nodes that belong to this project: only clients with our credentials may change them, all may read them.

Nodes of Pulsar and BookKeeper are created as those create them, open to everyone. A client without our credentials can
still delete a claim that has no children: that right belongs to the node above it, where brokers have nodes too.
"""

from __future__ import annotations

import re
import struct

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from clients.zookeeper import wire
from models.bookie_registry import ORCHESTRATOR, REGISTRY
from models.lifecycle.claim import CLAIM
from models.topic_controller.record import ROOT

#: The claim, its neighbours with names of the same prefix, records of topic controllers, and progress of a switch. The
#: rest of the registry is open: brokers with PIP-477 change it through their admin interface.
_OWN = re.compile(
    rf"(?:{re.escape(CLAIM)}(?:-[^/]*)?|{re.escape(ROOT)}|{re.escape(f'{REGISTRY}/{ORCHESTRATOR}')})(?:/.*)?".encode(),
    re.DOTALL,
)


def is_own(path: bytes) -> bool:
    """Return whether a node, relative to the chroot, belongs to this project."""
    return _OWN.fullmatch(path) is not None


def kazoo_acl(path: str, *, protects: bool) -> list[ACL]:
    """Return the ACL with which kazoo creates a node.

    Args:
        path: relative to the chroot.
        protects: whether the session can protect nodes.
    """
    protected = protects and is_own(path.encode(errors="surrogateescape"))
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if protected else OPEN_ACL_UNSAFE


def _entry(permissions: int, scheme: bytes, identity: bytes) -> bytes:
    return struct.pack(">i", permissions) + wire.buffer(scheme) + wire.buffer(identity)


#: All permissions for each identity of the session that creates the node, and read for everyone.
OWN_ACL = struct.pack(">i", 2) + _entry(31, b"auth", b"") + _entry(1, b"world", b"anyone")
