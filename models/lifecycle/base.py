"""Base of everything that workflows carry."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of everything that workflows carry: immutable, and unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
