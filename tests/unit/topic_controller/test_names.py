"""Names that people choose, and that become nodes of the metadata store."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.topic_controller.input import SubscriptionRequest
from models.topic_controller.sessions import Registrations


@pytest.mark.parametrize("name", ["one", "ä", "日本", "a b", "\uf900", "x" * 200])
def test_names(name: str) -> None:
    """Those that every metadata store takes are taken."""
    assert Registrations(subscription="bill", consumers=(name,)).consumers == (name,)
    assert SubscriptionRequest(name=name).name == name


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\n", "\x80", "\ue000", "\ufffd", "😀", "x" * 201])
def test_names_that_a_store_refuses(name: str) -> None:
    """They are refused before anything is noted: nobody else could be told anything any more."""
    with pytest.raises(ValidationError, match="is no name of a consumer"):
        Registrations(subscription="bill", consumers=(name,))
    with pytest.raises(ValidationError, match="is no name of a subscription"):
        SubscriptionRequest(name=name)
