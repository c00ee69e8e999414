"""Authentication of requests, and the roles that they need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from gateway.errors import HTTPProblem
from gateway.tokens import Role, Tokens

_REALM = 'Bearer realm="pulsar-migrate"'
_bearer = HTTPBearer(
    auto_error=False, description="A token of the gateway's file: role `admin`, or `client` for consumers."
)


class Authorizer:
    """Authorizes requests by their tokens.

    Args:
        tokens: the known tokens; None authorizes every request, on a gateway that only the local machine can reach.
    """

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    def authorize(self, token: str | None, needed: Role) -> None:
        """Check that the token of a request has the needed role.

        Raises:
            HTTPProblem: the request has no known token, or the token's role is not sufficient.
        """
        if self._tokens is None:
            return
        if token is None:
            raise HTTPProblem(
                HTTPStatus.UNAUTHORIZED, "send a token: Authorization: Bearer …", {"WWW-Authenticate": _REALM}
            )
        role = self._tokens.role_of(token)
        if role is None:
            challenge = f'{_REALM}, error="invalid_token"'
            raise HTTPProblem(HTTPStatus.UNAUTHORIZED, "unknown token", {"WWW-Authenticate": challenge})
        if not role.allows(needed):
            challenge = f'{_REALM}, error="insufficient_scope", scope="{needed}"'
            reason = f"this token has the role {role}; this request needs {needed}"
            raise HTTPProblem(HTTPStatus.FORBIDDEN, reason, {"WWW-Authenticate": challenge})


def needs(role: Role) -> Callable[..., Awaitable[None]]:
    """Return a dependency that refuses requests without a role."""

    async def check(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> None:
        authorizer: Authorizer = request.app.state.authorizer
        authorizer.authorize(given.credentials if given else None, role)

    return check


ADMIN, CLIENT = Depends(needs(Role.ADMIN)), Depends(needs(Role.CLIENT))
