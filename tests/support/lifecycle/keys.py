"""Keys of the payload codec for tests."""

from __future__ import annotations

import base64
import os


def key_line(key_id: str) -> str:
    """Return a line for a file of keys, with a new key."""
    return f"{key_id} {base64.b64encode(os.urandom(32)).decode()}"
