"""Pulsar's own JWTs, verified with its key as brokers do: the subject, or another claim, is the role."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from gateway.access.principals import MAX_NAME
from models.topic_controller.sessions import json_size
from process.followed_file import EmptyFileError, FileError, FollowedFile

Key: TypeAlias = bytes | RSAPublicKey | EllipticCurvePublicKey

_MIN_SECRET_BYTES, _MIN_RSA_BITS = 32, 2048
_OF_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_PEM = b"-----BEGIN "


class JwtError(Exception):
    """A JWT is refused; the message says why, and has no part of it."""


class VerifyingKey(NamedTuple):
    """A key, and the algorithms that it is for.

    Attributes:
        key: secret or public key.
        algorithms: those of the key's type. A token cannot choose another one.
    """

    key: Key
    algorithms: tuple[str, ...]


class JwtVerifier:
    """Verifies JWTs with a key in a file, which is read again when it changes.

    Args:
        file: the key.
        public: whether it is a public key (PEM or DER), and not a secret one (its bytes).
        auth_claim: claim with the role.
        audience_claim: claim with the audience.
        audience: the audience that a token must have; empty for any.

    Raises:
        FileError: the file cannot be used.
    """

    def __init__(
        self, file: Path, *, public: bool, auth_claim: str = "sub", audience_claim: str = "aud", audience: str = ""
    ) -> None:
        self._followed = FollowedFile(file, public_key if public else secret_key)
        self._auth_claim = auth_claim
        self._audience_claim = audience_claim
        self._audience = audience

    def role_of(self, token: str) -> str:
        """Return the role of a token.

        Raises:
            JwtError: the token is not valid now, or has no role.
        """
        key = self._followed.content()
        if key is None:
            raise JwtError("the gateway has no key for JWTs")
        # Audience and role are in claims that the operator names.
        options: Any = {"verify_aud": False, "verify_sub": False, "verify_iss": False, "verify_jti": False}
        try:
            claims = jwt.decode(token, cast("Any", key.key), algorithms=[*key.algorithms], options=options)
        except jwt.ExpiredSignatureError:
            raise JwtError("the JWT has expired") from None
        except jwt.ImmatureSignatureError:
            raise JwtError("the JWT is not valid yet") from None
        except jwt.InvalidAlgorithmError:
            raise JwtError(f"the JWT has another algorithm; use {' or '.join(key.algorithms)}") from None
        # Whatever a token is, it is a refusal.
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise JwtError("the JWT is invalid, or signed with another key") from None
        if self._audience and self._audience not in _listed(claims.get(self._audience_claim)):
            raise JwtError("the JWT is for another audience")
        return self._role_in(claims)

    def _role_in(self, claims: dict[str, Any]) -> str:
        # Brokers use the first role of a list.
        roles = _listed(claims.get(self._auth_claim))
        role = roles[0] if roles else None
        # A text with half characters has no form in UTF-8.
        if not isinstance(role, str) or not role.isprintable() or not 0 < json_size(role) <= MAX_NAME:
            raise JwtError(f"the JWT has no role in its claim {self._auth_claim}")
        return role


def looks_like_jwt(token: str) -> bool:
    """Return whether a token has the form of a signed JWT."""
    return token.count(".") == 2


def secret_key(file: Path, data: bytes) -> VerifyingKey:
    """Return the secret key in a file that `pulsar tokens create-secret-key` has written.

    Raises:
        FileError: it is not a secret key.
    """
    if not data:
        raise EmptyFileError(f"{file} is empty, so every JWT is refused")
    if data.startswith(_PEM) or _der(data) is not None:
        # Everybody may know a public key, and could sign with it.
        raise FileError(f"{file} is a public or private key; set jwt_public_key_file to the public one instead")
    if len(data) < _MIN_SECRET_BYTES:
        raise FileError(f"{file} has {len(data)} bytes; a secret key needs {_MIN_SECRET_BYTES} or more")
    sizes = [size for size in (256, 384, 512) if len(data) * 8 >= size]
    return VerifyingKey(data, tuple(f"HS{size}" for size in sizes))


def public_key(file: Path, data: bytes) -> VerifyingKey:
    """Return the public key in a file that `pulsar tokens create-key-pair` has written (DER), or in PEM.

    Raises:
        FileError: it is not a public key of RSA or of a known elliptic curve.
    """
    if not data.strip():
        raise EmptyFileError(f"{file} is empty, so every JWT is refused")
    key = _pem(data) if data.lstrip().startswith(_PEM) else _der(data)
    if isinstance(key, RSAPublicKey):
        if key.key_size < _MIN_RSA_BITS:
            raise FileError(f"{file} has an RSA key of {key.key_size} bits; use {_MIN_RSA_BITS} or more")
        return VerifyingKey(key, ("RS256", "RS384", "RS512"))
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _OF_CURVES:
        return VerifyingKey(key, (_OF_CURVES[key.curve.name],))
    raise FileError(f"{file} is not a public key of RSA, P-256, P-384 or P-521, in PEM or DER")


def _pem(data: bytes) -> object:
    try:
        return load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        return None


def _der(data: bytes) -> object:
    try:
        return load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        return None


def _listed(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]
