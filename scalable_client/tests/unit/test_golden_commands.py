"""Commands and metadata in the bytes that were recorded from the two clients before they had one protocol package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_wire import pulsar_api_pb2
from pulsar_wire.frames import decode, encode

RECORDED: list[tuple[str, dict[str, Any], str]] = json.loads(
    (Path(__file__).parent / "data" / "commands.json").read_text()
)


@pytest.mark.parametrize(("name", "fields", "recorded"), RECORDED, ids=[name for name, _, _ in RECORDED])
def test_recorded_bytes(name: str, fields: dict[str, Any], recorded: str) -> None:
    """Each message is written in the recorded bytes, and read from them with no field that is not known."""
    message: Message = ParseDict(fields, getattr(pulsar_api_pb2, name)())
    data = bytes.fromhex(recorded)
    if not name.startswith("Command"):
        assert message.SerializeToString() == data
        parsed: Message = getattr(pulsar_api_pb2, name)()
        parsed.ParseFromString(data)
    else:
        assert encode(message) == data
        command = decode(data[4:]).command
        assert command is not None
        parsed = command
    assert parsed == message
    assert len(UnknownFieldSet(parsed)) == 0


@pytest.mark.parametrize("later", [b"\xa0\x06\x05", b"\xa2\x06\x03abc", b"\xa5\x06abcd", b"\xa1\x06abcdefgh"])
def test_fields_of_later_versions_survive(later: bytes) -> None:
    """Metadata that is read and written again keeps fields that this package does not know."""
    serialized = pulsar_api_pb2.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2).SerializeToString()
    metadata = pulsar_api_pb2.MessageMetadata.FromString(later + serialized)
    metadata.num_messages_in_batch = 3
    written = metadata.SerializeToString()
    assert later in written
    assert pulsar_api_pb2.MessageMetadata.FromString(written) == metadata
