"""The role that each request needs. A request that is not listed here is not served."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from starlette.routing import compile_path

from gateway.access.principals import Principal, Role
from gateway.errors import HTTPProblem

_SCALABLE = "/admin/v2/scalable/{tenant}/{namespace}"
_TOPIC = f"{_SCALABLE}/{{topic}}"
_SUBSCRIPTION = f"{_TOPIC}/subscriptions/{{subscription}}"
_CONSUMER = f"{_SUBSCRIPTION}/consumers/{{consumer}}"
_SEGMENT = "/admin/v2/segments/{tenant}/{namespace}/{topic}/{descriptor}"

RIGHTS: dict[str, dict[str, Role]] = {
    _SCALABLE: {"GET": Role.READER},
    _TOPIC: {"GET": Role.READER, "PUT": Role.ADMIN, "DELETE": Role.ADMIN},
    f"{_TOPIC}/stats": {"GET": Role.READER},
    _SUBSCRIPTION: {"PUT": Role.ADMIN, "DELETE": Role.ADMIN},
    _CONSUMER: {"POST": Role.CLIENT, "DELETE": Role.CLIENT},
    f"{_TOPIC}/split/{{segment}}": {"POST": Role.ADMIN},
    f"{_TOPIC}/merge/{{first}}/{{second}}": {"POST": Role.ADMIN},
    _SEGMENT: {"PUT": Role.ADMIN, "DELETE": Role.ADMIN},
    f"{_SEGMENT}/terminate": {"POST": Role.ADMIN},
}
"""Paths and methods, with the role that they need in the namespace of the path."""

# Compared as the router does, so that both understand a path alike.
_PATTERNS = [(path, compile_path(path)[0], methods) for path, methods in RIGHTS.items()]


class Request(NamedTuple):
    """A request that is listed in `RIGHTS`.

    Attributes:
        route: its path there.
        needed: role that it needs.
        tenant, namespace: of its topics.
        routine: a program sends it all the time.
    """

    route: str
    needed: Role
    tenant: str
    namespace: str
    routine: bool = False

    def authorize(self, principal: Principal) -> None:
        """Check that a principal may send the request.

        Raises:
            HTTPProblem: its role or its tenants are not sufficient.
        """
        if not principal.may_use(self.tenant, self.namespace):
            reason = f"{principal.identity} has no rights in {self.tenant}/{self.namespace}"
        elif not principal.role.allows(self.needed):
            reason = f"{principal.identity} has the role {principal.role}; this request needs {self.needed}"
        else:
            return
        challenge = f'Bearer realm="pulsar-migrate", error="insufficient_scope", scope="{self.needed}"'
        raise HTTPProblem(HTTPStatus.FORBIDDEN, reason, {"WWW-Authenticate": challenge})


def find(method: str, path: str) -> Request:
    """Return the listed request of a method and a path.

    Raises:
        HTTPProblem: there is none.
    """
    for route, pattern, methods in _PATTERNS:
        if match := pattern.match(path):
            if needed := methods.get(method):
                return Request(route, needed, match["tenant"], match["namespace"])
            allowed = ", ".join(sorted(methods))
            raise HTTPProblem(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed} for this path", {"Allow": allowed})
    raise HTTPProblem(HTTPStatus.NOT_FOUND, "there is no such path")
