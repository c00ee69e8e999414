"""A cursor's node as a broker changes it: with protobuf's own code, and none of the code that is under test.

Source: ManagedCursorInfo of Pulsar 5.0.1 (org.apache.bookkeeper.mledger.proto). Messages within it are bytes here,
which protobuf writes as it read them.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ATTRIBUTION = "_pulsar.bookieClusterName"

_FIELD = descriptor_pb2.FieldDescriptorProto
# Name, number, label and type of each field.
_CURSOR = (
    ("cursorsLedgerId", 1, _FIELD.LABEL_REQUIRED, _FIELD.TYPE_INT64),
    ("markDeleteLedgerId", 2, _FIELD.LABEL_OPTIONAL, _FIELD.TYPE_INT64),
    ("markDeleteEntryId", 3, _FIELD.LABEL_OPTIONAL, _FIELD.TYPE_INT64),
    ("individualDeletedMessages", 4, _FIELD.LABEL_REPEATED, _FIELD.TYPE_BYTES),
    ("properties", 5, _FIELD.LABEL_REPEATED, _FIELD.TYPE_BYTES),
    ("lastActive", 6, _FIELD.LABEL_OPTIONAL, _FIELD.TYPE_INT64),
    ("batchedEntryDeletionIndexInfo", 7, _FIELD.LABEL_REPEATED, _FIELD.TYPE_BYTES),
)
_PROPERTY = (
    ("name", 1, _FIELD.LABEL_REQUIRED, _FIELD.TYPE_STRING),
    ("value", 2, _FIELD.LABEL_REQUIRED, _FIELD.TYPE_STRING),
)


def ledger_of(node: bytes) -> int:
    """Return the cursor's ledger; -1 for none."""
    return _parsed(node).cursorsLedgerId


def properties(node: bytes) -> dict[str, str]:
    """Return the properties that users see, including the attribution."""
    return {cursorproperty.name: cursorproperty.value for cursorproperty in _parsed(node).cursorProperties}


def without_properties(node: bytes) -> bytes:
    """Return everything else."""
    cursor = _parsed(node)
    cursor.ClearField("cursorProperties")
    return cursor.SerializeToString()


def attributed(node: bytes, cluster: str) -> bytes:
    """Return the node with its ledger attributed to a bookie cluster."""
    cursor = _parsed(node)
    for cursorproperty in cursor.cursorProperties:
        if cursorproperty.name == ATTRIBUTION:
            cursorproperty.value = cluster
            return cursor.SerializeToString()
    cursor.cursorProperties.add(name=ATTRIBUTION, value=cluster)
    return cursor.SerializeToString()


def _parsed(node: bytes) -> Any:
    cursor = _TYPE.FromString(node)
    # A field that is not known here would move to another place, and a test would take that for a change.
    assert cursor.SerializeToString() == node
    return cursor


def _message_type() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="cursor_node.proto", package="cursor_node", syntax="proto2")
    for name, fields in (("Property", _PROPERTY), ("Cursor", _CURSOR)):
        message = file.message_type.add(name=name)
        for field, number, label, kind in fields:
            message.field.add(name=field, number=number, label=label, type=kind)
    file.message_type[1].field.add(
        name="cursorProperties",
        number=8,
        label=_FIELD.LABEL_REPEATED,
        type=_FIELD.TYPE_MESSAGE,
        type_name=".cursor_node.Property",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cursor_node.Cursor"))


_TYPE = _message_type()
