"""Pulsar's JWTs: which are accepted, and as which role."""

from __future__ import annotations

import base64
import hmac
import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gateway.access.authenticator import Authenticator
from gateway.access.grants import JwtRoles, Tokens
from gateway.access.jwts import JwtError, JwtVerifier
from gateway.access.principals import Principal, Role
from gateway.errors import HTTPProblem
from process.followed_file import FileError
from tests.support.gateway.tokens import role_entry, token_entry, write

SECRET = bytes(range(32))
RSA_KEY, OTHER_RSA_KEY = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC_KEYS = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def public(key: Any, encoding: Encoding = Encoding.DER) -> bytes:
    """Return the public key of a private one, as a file has it; `pulsar tokens` writes DER."""
    return key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


def key_file(folder: Path, data: bytes) -> Path:
    """Return a file with a key."""
    file = folder / "key"
    file.write_bytes(data)
    return file


def forged(header: dict[str, Any], claims: dict[str, Any], key: bytes = b"") -> str:
    """Return a JWT that no library would make; signed with HMAC if there is a key."""
    parts = [base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=") for content in (header, claims)]
    signature = hmac.new(key, b".".join(parts), sha256).digest() if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.fixture
def verifier(tmp_path: Path) -> JwtVerifier:
    """Verifies with an RSA key."""
    return JwtVerifier(key_file(tmp_path, public(RSA_KEY)), public=True)


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", *EC_KEYS])
def test_public_keys(tmp_path: Path, algorithm: str, encoding: Encoding) -> None:
    """Tokens that a key pair of RSA or of an elliptic curve has signed have the role in their subject."""
    key: Any = RSA_KEY if algorithm.startswith("RS") else ec.generate_private_key(EC_KEYS[algorithm])
    verifier = JwtVerifier(key_file(tmp_path, public(key, encoding)), public=True)
    assert verifier.role_of(jwt.encode({"sub": "billing-app"}, key, algorithm)) == "billing-app"


@pytest.mark.parametrize(
    ("size", "algorithm", "fits"), [(32, "HS256", True), (64, "HS512", True), (32, "HS512", False)]
)
def test_secret_keys(tmp_path: Path, size: int, algorithm: str, *, fits: bool) -> None:
    """Tokens that a secret key has signed are accepted, with the algorithms that it is long enough for."""
    key = bytes(range(size))
    verifier = JwtVerifier(key_file(tmp_path, key), public=False)
    token = jwt.encode({"sub": "billing-app"}, key, algorithm)
    if fits:
        assert verifier.role_of(token) == "billing-app"
    else:
        with pytest.raises(JwtError, match="another algorithm; use HS256"):
            verifier.role_of(token)


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_algorithms_of_the_attacker(tmp_path: Path, encoding: Encoding) -> None:
    """The key decides the algorithm: neither `none` nor HMAC with the public key as its secret is accepted."""
    data = public(RSA_KEY, encoding)
    verifier = JwtVerifier(key_file(tmp_path, data), public=True)
    claims = {"sub": "admin", "exp": time.time() + 60}
    attacks = [forged({"alg": name, "typ": "JWT"}, claims) for name in ("none", "None", "NONE", "RS256", "")]
    attacks += [forged({"alg": "HS256"}, claims, data), forged({"alg": "RS256"}, claims, data)]
    attacks += [forged({}, claims, data), forged({"alg": "PS256"}, claims), forged({"alg": "ES256"}, claims)]
    attacks += [jwt.encode(claims, ec.generate_private_key(EC_KEYS["ES256"]), "ES256")]
    for attack in attacks:
        with pytest.raises(JwtError):
            verifier.role_of(attack)
    secret = JwtVerifier(key_file(tmp_path, SECRET), public=False)
    for attack in (forged({"alg": "none"}, claims), jwt.encode(claims, RSA_KEY, "RS256")):
        with pytest.raises(JwtError):
            secret.role_of(attack)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"sub": "a", "exp": 1}, "has expired"),
        ({"sub": "a", "nbf": 1 << 40}, "not valid yet"),
        ({"sub": "a", "exp": "soon"}, "invalid"),
        ({"sub": ""}, "no role in its claim sub"),
        ({"sub": "a" * 129}, "no role in its claim sub"),
        ({"sub": 7}, "no role in its claim sub"),
        ({"sub": []}, "no role in its claim sub"),
        ({"sub": None}, "no role in its claim sub"),
        ({"role": "a"}, "no role in its claim sub"),
    ],
)
def test_claims_that_are_refused(tmp_path: Path, claims: dict[str, Any], why: str) -> None:
    """A token that is expired, not valid yet, or without a role is refused; the reason shows nothing of it."""
    verifier = JwtVerifier(key_file(tmp_path, SECRET), public=False)
    with pytest.raises(JwtError, match=why):
        verifier.role_of(forged({"alg": "HS256"}, claims, SECRET))


def test_damaged_tokens(verifier: JwtVerifier) -> None:
    """A token with another signature, or that is not a JWT, is refused."""
    good = jwt.encode({"sub": "a"}, RSA_KEY, "RS256")
    other = jwt.encode({"sub": "a"}, OTHER_RSA_KEY, "RS256")
    deep = base64.urlsafe_b64encode(b"[" * 9000).decode()
    for token in (other, good[:-4], f"{good}.", "..", "a.b.c", f"{deep}.{deep}.", "é.é.é", good.replace(".", ".e30")):
        with pytest.raises(JwtError):
            verifier.role_of(token)


@pytest.mark.parametrize(
    ("audience", "accepted"),
    [("gateway", True), (["other", "gateway"], True), ("other", False), ([], False), (None, False), ("gate", False)],
)
def test_audiences(tmp_path: Path, audience: object, *, accepted: bool) -> None:
    """A token must have the audience that is set, in the claim that is set."""
    file = key_file(tmp_path, SECRET)
    verifier = JwtVerifier(file, public=False, audience_claim="for", audience="gateway")
    token = jwt.encode({"sub": "a", "for": audience, "aud": "gateway"}, SECRET, "HS256")
    if accepted:
        assert verifier.role_of(token) == "a"
    else:
        with pytest.raises(JwtError, match="another audience"):
            verifier.role_of(token)
    assert JwtVerifier(file, public=False).role_of(token) == "a"


def test_the_claim_of_the_role(tmp_path: Path) -> None:
    """The role is in the claim that is set; of a list it is the first, as on brokers."""
    verifier = JwtVerifier(key_file(tmp_path, SECRET), public=False, auth_claim="roles")
    assert verifier.role_of(jwt.encode({"sub": "a", "roles": "b"}, SECRET, "HS256")) == "b"
    assert verifier.role_of(jwt.encode({"roles": ["c", "d"]}, SECRET, "HS256")) == "c"


def test_a_key_that_changes(tmp_path: Path) -> None:
    """A new key counts with the next request, and without its file no JWT is accepted."""
    file = key_file(tmp_path, public(RSA_KEY))
    verifier = JwtVerifier(file, public=True)
    old, new = (jwt.encode({"sub": "a"}, key, "RS256") for key in (RSA_KEY, OTHER_RSA_KEY))
    file.write_bytes(public(OTHER_RSA_KEY, Encoding.PEM))
    assert verifier.role_of(new) == "a"
    with pytest.raises(JwtError):
        verifier.role_of(old)
    file.unlink()
    with pytest.raises(JwtError, match="has no key"):
        verifier.role_of(new)


def test_keys_that_are_refused(tmp_path: Path) -> None:
    """A key of another kind, or that is too weak, is refused at the start."""
    private = RSA_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    weak = rsa.generate_private_key(65537, 1024)
    for data, is_public, why in (
        (b"", True, "is empty"),
        (b"", False, "is empty"),
        (b"short", False, "has 5 bytes"),
        (b"no key", True, "is not a public key"),
        (private, True, "is not a public key"),
        (private, False, "public or private key"),
        (public(RSA_KEY), False, "public or private key"),
        (public(RSA_KEY, Encoding.PEM), False, "public or private key"),
        (public(weak), True, "1024 bits"),
        (public(ed25519.Ed25519PrivateKey.generate()), True, "is not a public key"),
    ):
        with pytest.raises(FileError, match=why):
            JwtVerifier(key_file(tmp_path, data), public=is_public)


def test_roles_have_rights_by_their_file(tmp_path: Path) -> None:
    """A JWT has the rights of its role's entry; without one it is refused. Own tokens still work."""
    authenticator = Authenticator(
        Tokens(write(tmp_path / "tokens", token_entry("own", "admin"))),
        JwtVerifier(key_file(tmp_path, SECRET), public=False),
        JwtRoles(write(tmp_path / "roles", role_entry("billing-app", "client", "acme"))),
    )

    def sent(token: str) -> Principal:
        return authenticator.authenticate(f"Bearer {token}")

    assert sent(jwt.encode({"sub": "billing-app"}, SECRET, "HS256")) == Principal(
        "jwt:billing-app", Role.CLIENT, ("acme",)
    )
    assert sent("own").role is Role.ADMIN
    for token, why in (
        (jwt.encode({"sub": "own"}, SECRET, "HS256"), "has no rights here"),
        (jwt.encode({"sub": "billing-app", "exp": 1}, SECRET, "HS256"), "has expired"),
        ("unknown", "unknown token"),
    ):
        with pytest.raises(HTTPProblem) as refused:
            sent(token)
        assert (refused.value.status, why in refused.value.reason) == (401, True)
    write(tmp_path / "roles", role_entry("billing-app", "client", "acme", expires="2020-01-01T00:00:00Z"))
    with pytest.raises(HTTPProblem, match="have expired"):
        sent(jwt.encode({"sub": "billing-app"}, SECRET, "HS256"))
