"""Addresses of inputs: nothing but scheme, host and port, so that a request goes to a broker and holds no secret."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from models.addresses import AdminUrl, BrokerUrl, WebUrl

ADMIN: TypeAdapter[str] = TypeAdapter(AdminUrl)
BROKER: TypeAdapter[str] = TypeAdapter(BrokerUrl)
GATEWAY: TypeAdapter[str] = TypeAdapter(WebUrl)


def test_addresses() -> None:
    """A slash at the end is left out; the address of a gateway may have a path, as behind a proxy."""
    assert ADMIN.validate_python("https://broker-1:8443/") == "https://broker-1:8443"
    assert ADMIN.validate_python("http://[::1]:8080") == "http://[::1]:8080"
    assert BROKER.validate_python("pulsar://broker-1:6650") == "pulsar://broker-1:6650"
    assert GATEWAY.validate_python("https://proxy/topics/") == "https://proxy/topics"


@pytest.mark.parametrize(
    "text",
    [
        "http://169.254.169.254/latest/meta-data/iam?x=",
        "http://broker:8080/admin",
        "http://broker:8080?",
        "http://broker:8080#a",
        "ftp://broker",
        "http://",
        " http://broker:8080",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    """A path, a query or a fragment would change which service answers."""
    with pytest.raises(ValidationError, match="expected http://host:port or https://host:port"):
        ADMIN.validate_python(text)


@pytest.mark.parametrize("adapter", [ADMIN, GATEWAY])
def test_secrets_in_addresses_are_refused(adapter: TypeAdapter[str]) -> None:
    """An address with a password is refused; the message does not have it."""
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python("https://admin:hunter2@broker:8443")
    message = refused.value.errors(include_input=False)[0]["msg"]
    assert "set credentials in the worker's settings" in message
    assert "hunter2" not in message
