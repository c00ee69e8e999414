"""Files of tokens and roles for tests."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path


def token_entry(token: str, role: str, *tenants: str, name: str = "", expires: str = "") -> str:
    """Return the table of a token in a file of tokens.

    Args:
        token: the token.
        role: what it may do.
        tenants: where; everywhere if there are none.
        name: its name; by default the token's.
        expires: a date and time of TOML; empty for never.
    """
    return f'[[tokens]]\nsha256 = "{sha256(token.encode()).hexdigest()}"\n' + _grant(
        name or token, role, tenants, expires
    )


def role_entry(name: str, role: str, *tenants: str, expires: str = "") -> str:
    """Return the table of a JWT's role in a file of roles; arguments as for `token_entry`."""
    return "[[roles]]\n" + _grant(name, role, tenants, expires)


def _grant(name: str, role: str, tenants: Iterable[str], expires: str) -> str:
    listed = ", ".join(f'"{tenant}"' for tenant in tenants) or '"*"'
    lines = [f'name = "{name}"', f'role = "{role}"', f"tenants = [{listed}]"]
    return "\n".join([*lines, *([f"expires = {expires}"] if expires else [])]) + "\n\n"


def write(file: Path, *entries: str) -> Path:
    """Write a file again, as programs do that replace it; return it."""
    new = file.with_suffix(".new")
    new.write_text("".join(entries))
    return new.replace(file)
