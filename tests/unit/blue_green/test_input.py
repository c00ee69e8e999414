"""Input of the blue-green migration that cannot be meant is refused with its cause."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.blue_green.input import BlueGreenInput
from tests.support.blue_green.sides import side


def read(**fields: object) -> BlueGreenInput:
    """Return an input with these fields, and what it needs."""
    needed: dict[str, object] = {"cluster": "b", "blue": side("blue"), "green_cluster": "g", "green": side("green")}
    return BlueGreenInput.model_validate(needed | fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"green": side("blue")}, "blue and green have one metadata store"),
        ({"green": side("green") | {"admin_urls": ["http://broker-blue:8080"]}}, "have an admin URL in common"),
        ({"green_cluster": "b"}, "both clusters are named 'b'"),
        ({"drain_timeout": "P2D"}, "is not longer than drain_timeout"),
        ({"throttle_bytes": 10_001}, "throttle_bytes"),
    ],
)
def test_refused(fields: dict[str, object], why: str) -> None:
    """An input that must fail for a reason that it shows by itself is refused at once."""
    with pytest.raises(ValidationError, match=why):
        read(**fields)


def test_a_long_drain_with_a_longer_deadline() -> None:
    """`drain_timeout` and its deadline can be raised together."""
    assert read(drain_timeout="P2D", waves={"deadline": "P3D"}).drain_timeout.days == 2


def test_order_and_exclusion() -> None:
    """Namespaces go by their pattern; excluded ones and Pulsar's own stay."""
    input = read(namespaces=["shop/*", "*/*"], exclude=["shop/batch-*"])
    names = ["shop/orders", "bank/a", "shop/batch-1", "pulsar/system"]
    assert [input.rank(name) for name in names] == [0, 1, None, None]
    assert [input.excludes(name) for name in names] == [False, False, True, False]


def test_the_namespace_of_functions() -> None:
    """No pattern moves it, since workers would find nothing to run on green; its name does."""
    assert read(namespaces=["public/*", "*/*"]).rank("public/functions") is None
    assert read(namespaces=["public/functions", "*/*"]).rank("public/functions") == 0
