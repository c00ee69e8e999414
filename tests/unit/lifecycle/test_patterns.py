"""Only `*` is special in patterns of inputs."""

from __future__ import annotations

import pytest

from models.lifecycle.patterns import matches


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("shop/*", "shop/orders"),
        ("*/*", "acme/blue/old"),
        ("shop/orders/*", "shop/orders/a\nb"),
        ("shop/orders/sensor[1]", "shop/orders/sensor[1]"),
        ("shop/orders/what?", "shop/orders/what?"),
        ("shop/orders/[!a]*", "shop/orders/[!a]b"),
        ("shop/a.b", "shop/a.b"),
    ],
)
def test_matches(pattern: str, name: str) -> None:
    """`*` matches any text, and each other character only itself."""
    assert matches(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("shop/orders/sensor[1]", "shop/orders/sensor1"),
        ("shop/orders/what?", "shop/orders/whatX"),
        ("shop/orders/[!a]*", "shop/orders/b"),
        ("shop/a.b", "shop/axb"),
        ("shop/Orders", "shop/orders"),
        ("shop/orders", "shop/orders\n"),
    ],
)
def test_mismatches(pattern: str, name: str) -> None:
    """Brackets, question marks and dots match only themselves."""
    assert not matches(name, pattern)
