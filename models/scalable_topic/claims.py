"""What a migration to scalable topics notes in the metadata store before it changes a namespace."""

from __future__ import annotations

from models.lifecycle.claim import Changed, Claim


class GuardedNamespace(Claim):
    """The record of a namespace whose policies are held while topics of it become scalable.

    Attributes:
        retention: how long acknowledged messages are kept, before it was changed.
        auto_scale: when brokers split and merge segments on their own, before it was changed.
    """

    retention: Changed | None = None
    auto_scale: Changed | None = None
