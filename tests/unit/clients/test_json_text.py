"""JSON that servers, brokers' registrations and records hold: whatever it is, the error is typed."""

from __future__ import annotations

import httpx
import pytest

from clients.errors import StoreProtocolError
from clients.json_text import read_json, read_object
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.brokers import broker_addresses, registered_service_url, registered_urls
from clients.pulsar.admin.errors import AdminProtocolError, reason_of

DEEP = "[" * 200_000
HOSTILE = [DEEP, '{"a":' * 100_000, "[1]", "7", "null", "not JSON", "\x00", "\ud800"]


@pytest.mark.parametrize("text", [DEEP, "not JSON"], ids=["deep", "text"])
def test_faults_are_value_errors(text: str) -> None:
    """JSON of any depth is a ValueError, which readers of records expect."""
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting value"):
        read_json(text)


def test_values_are_read() -> None:
    """Usual JSON is read, and an object is returned as one."""
    assert read_json(b'[1, {"a": null}]') == [1, {"a": None}]
    assert read_object(b'{"a": 1}', "/a") == {"a": 1}
    with pytest.raises(StoreProtocolError, match="/a is not a JSON object"):
        read_object(b"\xff\xfe", "/a")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_registrations_of_other_forms(text: str) -> None:
    """A registration that is not one of a broker is a typed error."""
    with pytest.raises(StoreProtocolError):
        broker_addresses(text)
    with pytest.raises(StoreProtocolError):
        registered_service_url(text, AdminAccess())
    with pytest.raises(AdminProtocolError):
        registered_urls(text, AdminAccess())


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_refusals_of_other_forms(text: str) -> None:
    """The reason of a refusal is a short line, whatever the server answers."""
    reason = reason_of(httpx.Response(400, content=text.encode(errors="replace")))
    assert len(reason) <= 300
    assert "\n" not in reason
