"""Tokens: which are known, what each allows, and a file that changes."""

from __future__ import annotations

import logging
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.tokens import Role, Tokens, TokensError


def line(role: str, token: str) -> str:
    """Return a line of the file."""
    return f"{role} {sha256(token.encode()).hexdigest()}"


def write(file: Path, *lines: str) -> None:
    """Write the file again, as programs do that replace it."""
    new = file.with_suffix(".new")
    new.write_text("\n".join(lines))
    new.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a token of each role."""
    path = tmp_path / "tokens"
    write(path, "# who", "", line("admin", "root"), f"  {line('client', 'billing')}  # of billing")
    return path


def test_roles(file: Path) -> None:
    """Each token has its role, and others have none; a hash is not accepted as a token."""
    tokens = Tokens(file)
    assert (tokens.role_of("root"), tokens.role_of("billing")) == (Role.ADMIN, Role.CLIENT)
    assert [tokens.role_of(token) for token in ("", "Root", "root ", sha256(b"root").hexdigest())] == [None] * 4
    assert [Role.ADMIN.allows(role) for role in Role] == [True, True]
    assert [Role.CLIENT.allows(role) for role in Role] == [False, True]


def test_a_file_that_changes(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file counts from the next request; an invalid one is reported, and changes nothing."""
    tokens = Tokens(file)
    write(file, line("client", "root"), line("admin", "new"))
    assert (tokens.role_of("root"), tokens.role_of("billing"), tokens.role_of("new")) == (Role.CLIENT, None, Role.ADMIN)
    write(file, "admin secret-in-the-wrong-place")
    with caplog.at_level(logging.ERROR):
        assert tokens.role_of("new") is Role.ADMIN
    assert "line 1: invalid" in caplog.text
    assert "the previous tokens stay valid" in caplog.text
    assert "secret" not in caplog.text
    write(file, line("client", "new"))
    assert tokens.role_of("new") is Role.CLIENT


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "deleted"])
def test_file_without_tokens_revokes_all(file: Path, caplog: pytest.LogCaptureFixture, *, emptied: bool) -> None:
    """An emptied or deleted file revokes all tokens with the next request, and is reported once."""
    tokens = Tokens(file)
    assert tokens.role_of("root") is Role.ADMIN
    if emptied:
        write(file, "# revoked")
    else:
        file.unlink()
    with caplog.at_level(logging.ERROR):
        assert [tokens.role_of(token) for token in ("root", "billing", "root")] == [None] * 3
    assert [record.getMessage().endswith("; no token is valid") for record in caplog.records] == [True]
    write(file, line("client", "root"))
    assert tokens.role_of("root") is Role.CLIENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# no role",
        "root 0",
        "admin",
        f"owner {'0' * 64}",
        f"admin {'g' * 64}",
        f"admin {'0' * 63}",
        f"{'0' * 64} admin",
    ],
)
def test_invalid_files_of_tokens(tmp_path: Path, text: str) -> None:
    """A gateway does not start with a file that is wrong, or has no tokens."""
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(TokensError, match=r"expected admin or client|add one line"):
        Tokens(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Nor without one."""
    with pytest.raises(TokensError, match="cannot be read"):
        Tokens(tmp_path / "tokens")
