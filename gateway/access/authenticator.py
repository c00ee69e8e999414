"""Authentication: a bearer token of a request becomes a principal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

from gateway.access.grants import JwtRoles, Tokens
from gateway.access.jwts import JwtError, JwtVerifier, looks_like_jwt
from gateway.access.principals import LOCAL, Grant, Principal
from gateway.errors import HTTPProblem

REALM = 'Bearer realm="pulsar-migrate"'
_SCHEME = "bearer "


def _now() -> datetime:
    return datetime.now(UTC)


class Authenticator:
    """Authenticates requests by their tokens.

    Args:
        tokens: tokens of the gateway's own; None for none.
        verifier: verifies JWTs of Pulsar; None to refuse them.
        roles: what the roles in these JWTs grant.
        now: current time.
    """

    def __init__(
        self,
        tokens: Tokens | None = None,
        verifier: JwtVerifier | None = None,
        roles: JwtRoles | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._tokens = tokens
        self._verifier = verifier
        self._roles = roles
        self._now = now

    def authenticate(self, authorization: str | None) -> Principal:
        """Return who sends a request.

        Without tokens and JWTs each request is from the local machine, which alone can connect.

        Args:
            authorization: value of its header `Authorization`; None if it has none, or more than one.

        Raises:
            HTTPProblem: it has no token, or one that is not valid.
        """
        if self._tokens is None and self._verifier is None:
            return LOCAL
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise HTTPProblem(
                HTTPStatus.UNAUTHORIZED, "send a token: Authorization: Bearer …", {"WWW-Authenticate": REALM}
            )
        token = authorization[len(_SCHEME) :].strip()
        if self._tokens is not None and (grant := self._tokens.grant_of(token)):
            return self._valid(grant, "token")
        if self._verifier is None or not looks_like_jwt(token):
            raise invalid("unknown token")
        return self._of_jwt(self._verifier, token)

    def _of_jwt(self, verifier: JwtVerifier, token: str) -> Principal:
        try:
            role = verifier.role_of(token)
        except JwtError as error:
            raise invalid(str(error)) from None
        grant = self._roles.grant_of(role) if self._roles is not None else None
        if grant is None:
            raise invalid("the role of this JWT has no rights here")
        return self._valid(grant, "jwt")

    def _valid(self, grant: Grant, kind: str) -> Principal:
        if grant.expires is not None and grant.expires <= self._now():
            raise invalid("the token has expired" if kind == "token" else "the rights of this JWT's role have expired")
        return grant.principal(kind)


def invalid(reason: str) -> HTTPProblem:
    """Return the answer to a request with a token that is not valid."""
    return HTTPProblem(HTTPStatus.UNAUTHORIZED, reason, {"WWW-Authenticate": f'{REALM}, error="invalid_token"'})
