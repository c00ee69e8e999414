"""The records of a metadata store that belong to Pulsar."""

from __future__ import annotations

import pytest

from clients.pulsar.roots import is_pulsars


@pytest.mark.parametrize("path", [b"/admin/clusters/a", b"/topics/a/b/c", b"/topic-creation-locks/a", b"/txn/id/1"])
def test_records_of_pulsar(path: bytes) -> None:
    """Records below a root of Pulsar are Pulsar's, those that only 5.0 creates among them."""
    assert is_pulsars(path)


@pytest.mark.parametrize("path", [b"/kafka/a", b"/topicality", b"/zookeeper"])
def test_records_of_others(path: bytes) -> None:
    """The remaining records belong to other programs."""
    assert not is_pulsars(path)
