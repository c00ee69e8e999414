"""Files of tokens and roles: what each entry grants, and what a change of the file does."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.access.authenticator import Authenticator
from gateway.access.grants import JwtRoles, Tokens
from gateway.access.principals import LOCAL, Principal, Role
from gateway.errors import HTTPProblem
from process.followed_file import FileError
from tests.support.gateway.tokens import role_entry, token_entry, write

HASH = "0" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a token of each kind."""
    return write(
        tmp_path / "tokens.toml",
        "# the platform team\n",
        token_entry("root-token", "admin", name="platform"),
        token_entry("billing-token", "client", "acme/orders", "shop", name="billing"),
    )


def principal_of(file: Path, token: str, at: datetime | None = None) -> Principal | None:
    """Return who has a token; None if it is refused."""
    authenticator = Authenticator(Tokens(file), now=lambda: at or datetime.now(UTC))
    try:
        return authenticator.authenticate(f"Bearer {token}")
    except HTTPProblem:
        return None


def test_what_tokens_grant(file: Path) -> None:
    """Each token has its name, role and tenants, and others have nothing; a hash is not accepted as a token."""
    assert principal_of(file, "root-token") == Principal("token:platform", Role.ADMIN, ("*",))
    assert principal_of(file, "billing-token") == Principal("token:billing", Role.CLIENT, ("acme/orders", "shop"))
    unknown = ("", "Root-token", "platform", sha256(b"root-token").hexdigest())
    assert [principal_of(file, token) for token in unknown] == [None] * 4
    for authorization in (None, "", "root-token", "Basic root-token", "Bearer", "Bearerroot-token"):
        with pytest.raises(HTTPProblem):
            Authenticator(Tokens(file)).authenticate(authorization)
    assert Authenticator().authenticate(None) is LOCAL


@pytest.mark.parametrize(
    ("tenants", "place", "may"),
    [
        (("acme",), ("acme", "orders"), True),
        (("acme",), ("acme2", "orders"), False),
        (("acme/orders",), ("acme", "orders"), True),
        (("acme/orders",), ("acme", "orders2"), False),
        (("acme/orders",), ("acme", "other"), False),
        (("shop", "acme/orders"), ("shop", "any"), True),
        (("*",), ("any", "any"), True),
        (("acme",), ("*", "orders"), False),
    ],
)
def test_tenants(tenants: tuple[str, ...], place: tuple[str, str], *, may: bool) -> None:
    """Rights are for whole tenants, or for single namespaces, by their exact names."""
    assert Principal("token:a", Role.CLIENT, tenants).may_use(*place) is may


def test_roles_include_those_before_them() -> None:
    """A client may do what a reader may, and an admin everything."""
    assert [[role.allows(needed) for needed in Role] for role in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_tokens_expire(tmp_path: Path) -> None:
    """A token is refused from its expiry on."""
    file = write(tmp_path / "tokens", token_entry("a", "admin", expires="2027-01-01T00:00:00Z"))
    before, after = (datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC) for year in (2026, 2027))
    assert principal_of(file, "a", before) is not None
    assert principal_of(file, "a", after) is None
    assert principal_of(file, "a", datetime(2027, 1, 1, tzinfo=UTC)) is None


def test_a_token_can_be_replaced(tmp_path: Path) -> None:
    """Two tokens can have one name and the same rights, so that clients change from one to the other."""
    entries = [token_entry(token, "client", "acme", name="billing") for token in ("old", "new")]
    file = write(tmp_path / "tokens", *entries)
    assert principal_of(file, "old") == principal_of(file, "new") == Principal("token:billing", Role.CLIENT, ("acme",))
    write(file, *entries, token_entry("other", "admin", "acme", name="billing"))
    with pytest.raises(FileError, match="different rights"):
        Tokens(file)


def faults_of_files(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what was logged of files, without the records of threads of other tests."""
    return [record for record in caplog.records if record.name == "process.followed_file"]


def test_a_file_that_changes(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file counts from the next request; an invalid one is reported once, and changes nothing."""
    tokens = Tokens(file)

    def names(*given: str) -> list[str | None]:
        grants = [tokens.grant_of(token) for token in given]
        return [grant.name if grant else None for grant in grants]

    write(file, token_entry("new", "admin"))
    assert names("root-token", "billing-token", "new") == [None, None, "new"]
    file.write_text('[[tokens]]\nname = "secret-in-the-wrong-place"\nsha256 = "secret"')
    with caplog.at_level(logging.ERROR):
        assert names("new", "new") == ["new", "new"]
    [record] = faults_of_files(caplog)
    assert "its previous content stays valid" in record.getMessage()
    assert "sha256: String should match pattern" in record.getMessage()
    write(file, token_entry("other", "client"))
    assert names("new", "other") == [None, "other"]


@pytest.mark.parametrize("change", ["emptied", "commented", "deleted"])
def test_file_without_tokens_revokes_all(file: Path, caplog: pytest.LogCaptureFixture, change: str) -> None:
    """An emptied or deleted file revokes all tokens with the next request, and is reported once."""
    tokens = Tokens(file)
    assert tokens.grant_of("root-token")
    if change == "deleted":
        file.unlink()
    else:
        file.write_text("" if change == "emptied" else "# revoked\n")
    with caplog.at_level(logging.ERROR):
        assert [tokens.grant_of(token) for token in ("root-token", "billing-token", "root-token")] == [None] * 3
    assert [record.getMessage().endswith("; nothing in it is valid") for record in faults_of_files(caplog)] == [True]
    write(file, token_entry("root-token", "reader"))
    assert tokens.grant_of("root-token")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no [[tokens]]"),
        ("# none", "has no [[tokens]]"),
        (f"client {HASH}", "is not TOML"),
        ("[[roles]]", "more than tables [[tokens]]"),
        ("tokens = 1", "more than tables [[tokens]]"),
        (f'[[tokens]]\nname="a"\nrole="client"\nsha256="{HASH}"', "tenants: this field is needed"),
        (f'[[tokens]]\nname="a"\nrole="client"\ntenants=[]\nsha256="{HASH}"', "tenants: Tuple should have"),
        (f'[[tokens]]\nname="a"\nrole="client"\ntenants=["a/*"]\nsha256="{HASH}"', "invalid tenant 'a/*'"),
        (f'[[tokens]]\nname="a"\nrole="client"\ntenants=[""]\nsha256="{HASH}"', "invalid tenant ''"),
        (f'[[tokens]]\nname="a"\nrole="owner"\ntenants=["a"]\nsha256="{HASH}"', "role: Input should be"),
        (f'[[tokens]]\nrole="client"\ntenants=["a"]\nsha256="{HASH}"', "name: this field is needed"),
        (f'[[tokens]]\nname="a\\nb"\nrole="client"\ntenants=["a"]\nsha256="{HASH}"', "invalid name"),
        ('[[tokens]]\nname="a"\nrole="client"\ntenants=["a"]\nsha256="0"', "sha256: String should match pattern"),
        (
            f'[[tokens]]\nname="a"\nrole="client"\ntenants=["a"]\nsha256="{HASH}"\nexpires=2027-01-01T00:00:00',
            "expires: Input should have timezone info",
        ),
        (
            f'[[tokens]]\nname="a"\nrole="client"\ntenants=["a"]\nsha256="{HASH}"\ntopics=["b"]',
            "there is no such field",
        ),
    ],
)
def test_invalid_files_of_tokens(tmp_path: Path, text: str, why: str) -> None:
    """A gateway does not start with a file that is wrong, or has no tokens; what a token may use is always explicit."""
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(FileError) as failed:
        Tokens(path)
    assert why in str(failed.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Nor with a file that is missing, or is not text."""
    with pytest.raises(FileError, match="cannot be read: No such file"):
        Tokens(tmp_path / "tokens")
    (tmp_path / "tokens").write_bytes(b"\xff")
    with pytest.raises(FileError, match="is not text"):
        Tokens(tmp_path / "tokens")


def test_roles_of_jwts(tmp_path: Path) -> None:
    """A role of a JWT has one entry at most."""
    file = write(tmp_path / "roles", role_entry("billing-app", "client", "acme"))
    grant = JwtRoles(file).grant_of("billing-app")
    assert grant is not None
    assert grant.principal("jwt") == Principal("jwt:billing-app", Role.CLIENT, ("acme",))
    assert JwtRoles(file).grant_of("unknown") is None
    write(file, role_entry("a", "client"), role_entry("a", "client"))
    with pytest.raises(FileError, match="more than one table"):
        JwtRoles(file)
