"""Access to the page: browsers send a token as a password, programs as a bearer token."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import NamedTuple

from gateway.access.authenticator import Authenticator
from gateway.access.grants import Tokens
from gateway.access.principals import EVERYTHING, Principal
from gateway.errors import HTTPProblem

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="pulsar-migrate: any name, the token as password", charset="UTF-8"'}
_BASIC = "basic "
_ROUTINE = frozenset(("/parts", "/metrics"))


class Viewers:
    """Authenticates requests of browsers and programs.

    Args:
        tokens: tokens that may see the page; None lets everybody see it who can connect.
    """

    def __init__(self, tokens: Tokens | None) -> None:
        self._authenticator = Authenticator(tokens)

    def authenticate(self, authorization: str | None) -> Principal:
        """Return who sends a request.

        Raises:
            HTTPProblem: it has no token, or one that is not valid.
        """
        try:
            return self._authenticator.authenticate(_as_bearer(authorization))
        except HTTPProblem as problem:
            # A browser asks its user only for this scheme.
            raise HTTPProblem(problem.status, problem.reason, _CHALLENGE) from None


def _as_bearer(authorization: str | None) -> str | None:
    """Return the header with the password of a browser as a bearer token; other headers stay as they are."""
    if authorization is None or not authorization.lower().startswith(_BASIC):
        return authorization
    try:
        login = base64.b64decode(authorization[len(_BASIC) :].strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return f"Bearer {login.partition(':')[2]}"


class PagePath(NamedTuple):
    """A path of the page, which any reader of all tenants may see; `routine` ones are asked every few seconds."""

    route: str
    routine: bool

    def authorize(self, principal: Principal) -> None:
        """Check that a principal may see migrations, which concern whole clusters.

        Raises:
            HTTPProblem: its token is valid for some tenants only.
        """
        if EVERYTHING not in principal.tenants:
            reason = f'{principal.identity} may see some tenants only; a migration needs tenants = ["*"]'
            raise HTTPProblem(HTTPStatus.FORBIDDEN, reason)


def find_path(method: str, path: str) -> PagePath:
    """Return what a request needs.

    Raises:
        HTTPProblem: the page only reads.
    """
    if method not in {"GET", "HEAD"}:
        raise HTTPProblem(HTTPStatus.METHOD_NOT_ALLOWED, "use GET: the page only reads", {"Allow": "GET, HEAD"})
    route = f"/{path.split('/')[1]}"
    return PagePath(route, routine=route in _ROUTINE)
