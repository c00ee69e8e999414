"""A double of the broker plugin that PIP-477 proposes, which no release of Pulsar has.

What is real: broker, ZooKeeper, bookies, and all lookups. Brokers register a web address of which this double is the
listener; it serves `/admin/v2/bookie-clusters` and passes everything else on to the broker. What is not: the double
changes a cursor's node in ZooKeeper itself, by compare-and-set as the owner would, because it cannot reach the broker's
memory. So a broker that has the topic loaded does not see the change, as it would with the plugin. New ledgers get no
attribution either, and every read and write of the broker goes to the one BookKeeper cluster that it is configured for.

Each request is checked against the proposal; what does not fit is answered 400 and kept in `violations`, which tests
expect to be empty. Of the proposal's requests only those are served that a migration from outside must make: it
registers, switches and cleans up by itself.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, NamedTuple, Self, cast
from urllib.parse import quote, quote_plus

import httpx
from kazoo.exceptions import BadVersionError, NoNodeError

from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from tests.support.bookie_cluster import cursor_node
from tests.support.http_server import HttpServer
from tests.support.metadata_store.stores import kazoo

PLUGIN = "/admin/v2/bookie-clusters"
_HOST, _BROKER_HOST = "127.0.0.2", "127.0.0.1"
_LIMIT = 30.0
_RETRIES = 5
_TOPIC = re.compile(r"persistent://([^/]+)/([^/]+)/([^/]+)")
_PROMOTE: dict[str, type] = {
    "topic": str,
    "cursorName": str,
    "targetClusterName": str,
    "expectedCursorsLedgerId": int,
}
_READ_MODES = frozenset(("DUAL_READ", "OLD_CLUSTER_ONLY", "NEW_CLUSTER_ONLY"))
_PASSED_ON = frozenset(("accept", "authorization", "content-type"))
_PASSED_BACK = frozenset(("content-type", "location"))


class Reply(NamedTuple):
    """Status and JSON of an answer."""

    status: int
    body: Any = None


class Broken(Exception):
    """A request that the proposal does not know."""


def bootstrap_marker(cluster: str) -> bytes:
    """Return the node that names the cluster of ledgers without a mark."""
    return json.dumps({"bootstrapClusterName": cluster, "recordedAt": 1_716_256_800_000}).encode()


def announce_doubles(stack: Stack) -> None:
    """Configure each broker of a stack to register the web address of its double."""
    for server in list(stack):
        if server.kind == "broker":
            stack.reconfigure(server.name, **_addresses(server))


class PluginDouble:
    """Listens for every broker of a stack; a context manager.

    Args:
        stack: whose brokers were started after `announce_doubles`.
        registry: the registry's node.
        bootstrap: the cluster that it says ledgers without a mark belong to; None says nothing, as before the third
            revision of the proposal.

    Attributes:
        violations: requests that do not fit the proposal, in words.
        promotions: bodies of the requests to promote a cursor.
        read_modes: the last mode that each broker received, by its name in the stack.
        closed: each broker with the cluster whose client it was asked to close.
        before_promote: called with the body of each request to promote a cursor, before anything is checked.
        troubles: error statuses to answer the next requests to promote a cursor with, instead of doing it.
        deaf: names of brokers that answer every request with 500.
    """

    def __init__(self, stack: Stack, registry: str = "/admin/bookie-clusters", *, bootstrap: str | None = None) -> None:
        self._bootstrap = bootstrap
        self.violations: list[str] = []
        self.promotions: list[dict[str, Any]] = []
        self.read_modes: dict[str, str] = {}
        self.closed: list[tuple[str, str]] = []
        self.before_promote: Callable[[dict[str, Any]], None] | None = None
        self.troubles: deque[int] = deque()
        self.deaf: set[str] = set()
        self._stack = stack
        self._registry = registry
        self._resources = ExitStack()
        self._zookeeper: Any = None
        self._brokers: dict[str, httpx.Client] = {}

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            self._zookeeper = resources.enter_context(kazoo(self._stack.zk_url))
            if self._bootstrap is not None:
                self._zookeeper.ensure_path(self._registry)
                self._zookeeper.create(f"{self._registry}/bootstrap", bootstrap_marker(self._bootstrap))
            for server in self._stack:
                if server.kind == "broker":
                    self._listen_for(server, resources)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def answer(self, broker: Server, method: str, path: str, content_type: str, body: bytes) -> Reply:
        """Return the plugin's answer to a request, whose path starts after `bookie-clusters`."""
        if broker.name in self.deaf:
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"reason": "on order of the test"})
        try:
            return self._serve(broker, method, path, _json(content_type, body))
        except Broken as broken:
            self.violations.append(f"{method} {path}: {broken}")
            return Reply(HTTPStatus.BAD_REQUEST, {"reason": str(broken)})

    def _serve(self, broker: Server, method: str, path: str, body: Any) -> Reply:
        match method, path.strip("/").split("/"):
            case "GET", ["status"]:
                return Reply(HTTPStatus.OK, {"readMode": self.read_modes.get(broker.name, "DUAL_READ")})
            case "POST", ["read-mode"]:
                _must_have(body, {"mode": str})
                if body["mode"] not in _READ_MODES:
                    raise Broken(f"there is no read mode {body['mode']!r}")
                self.read_modes[broker.name] = body["mode"]
                return Reply(HTTPStatus.NO_CONTENT)
            case "POST", ["close-client", cluster]:
                if body is not None:
                    raise Broken("it has a body")
                self._must_be_registered(cluster)
                self.closed.append((broker.name, cluster))
                return Reply(HTTPStatus.NO_CONTENT)
            case "POST", ["internal", "promote-cursor"]:
                _must_have(body, _PROMOTE)
                self._must_be_registered(body["targetClusterName"])
                return self._promote_cursor(broker, body)
            case _:
                raise Broken("it is none that a migration must make")

    def _promote_cursor(self, broker: Server, body: dict[str, Any]) -> Reply:
        self.promotions.append(body)
        if self.troubles:
            return Reply(self.troubles.popleft(), {"reason": "on order of the test"})
        if self.before_promote:
            self.before_promote(body)
        parts = _TOPIC.fullmatch(body["topic"])
        if parts is None:
            raise Broken(f"{body['topic']!r} is not a complete topic name")
        if not self._owns(broker, parts):
            return Reply(HTTPStatus.NOT_FOUND, {"reason": f"{broker.name} does not own {body['topic']}"})
        tenant, namespace, topic = parts.groups()
        names = f"{tenant}/{namespace}/persistent/{_encoded(topic)}/{_encoded(body['cursorName'])}"
        return self._compare_and_set(f"/managed-ledgers/{names}", body)

    def _compare_and_set(self, path: str, body: dict[str, Any]) -> Reply:
        for _ in range(_RETRIES):
            try:
                value, stat = self._zookeeper.get(path)
                ledger, expected = cursor_node.ledger_of(value), body["expectedCursorsLedgerId"]
                if ledger != expected:
                    return Reply(HTTPStatus.CONFLICT, {"reason": f"the cursor has ledger {ledger}, not {expected}"})
                changed = cursor_node.attributed(value, body["targetClusterName"])
                if changed != value:
                    self._zookeeper.set(path, changed, stat.version)
            except NoNodeError:
                return Reply(HTTPStatus.NOT_FOUND, {"reason": f"there is no cursor {body['cursorName']!r}"})
            except BadVersionError:
                continue
            return Reply(HTTPStatus.NO_CONTENT)
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"reason": "others kept changing the cursor"})

    def _owns(self, broker: Server, topic: re.Match[str]) -> bool:
        name = "/".join(quote(group, safe="") for group in topic.groups())
        answer = self._brokers[broker.name].get(f"/lookup/v2/topic/persistent/{name}").raise_for_status().json()
        return answer["httpUrl"] == f"http://{_HOST}:{broker.ports['http']}"

    def _must_be_registered(self, cluster: str) -> None:
        if not self._zookeeper.exists(f"{self._registry}/{cluster}"):
            raise Broken(f"no cluster {cluster!r} is registered")

    def _listen_for(self, broker: Server, resources: ExitStack) -> None:
        onward = resources.enter_context(httpx.Client(base_url=_real(broker), timeout=_LIMIT, trust_env=False))
        self._brokers[broker.name] = onward
        resources.enter_context(HttpServer(_handler(self, broker, onward), broker.ports["http"], _HOST))


def _handler(double: PluginDouble, broker: Server, onward: httpx.Client) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One connection to the double."""

        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Log nothing: violations have all that is needed."""

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            if path == PLUGIN or path.startswith(f"{PLUGIN}/"):
                kind = self.headers.get("Content-Type") or ""
                reply = double.answer(broker, self.command, path.removeprefix(PLUGIN), kind, body)
                text = b"" if reply.body is None else json.dumps(reply.body).encode()
                self._send(reply.status, {"Content-Type": "application/json"} if text else {}, text)
            else:
                self._pass_on(body)

        def _pass_on(self, body: bytes) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED_ON}
            try:
                answer = onward.request(self.command, self.path, content=body, headers=headers)
            except httpx.HTTPError as error:
                self._send(HTTPStatus.BAD_GATEWAY, {}, f"the broker does not answer ({error})".encode())
                return
            back = {name: value for name, value in answer.headers.items() if name in _PASSED_BACK}
            self._send(answer.status_code, back, answer.content)

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD" and status != HTTPStatus.NO_CONTENT:
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _do  # noqa: N815 - names that the base class looks for

    return Handler


def _addresses(broker: Server) -> dict[str, str]:
    """Return lines of `broker.conf`: clients are sent to the broker, and users of its web address to the double."""
    binary, web = broker.ports["client"], broker.ports["http"]
    return {
        "advertisedAddress": _HOST,
        "advertisedListeners": f"internal:pulsar://{_BROKER_HOST}:{binary},internal:http://{_HOST}:{web}",
        "internalListenerName": "internal",
    }


def _real(broker: Server) -> str:
    return f"http://{_BROKER_HOST}:{broker.ports['http']}"


def _json(content_type: str, body: bytes) -> Any:
    if not body:
        return None
    if content_type.partition(";")[0] != "application/json":
        raise Broken(f"its content type is {content_type!r}, not application/json")
    try:
        return json.loads(body)
    except ValueError as error:
        raise Broken(f"its body is not JSON ({error})") from error


def _must_have(body: Any, fields: dict[str, type]) -> None:
    given = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    types: dict[str, type] = {name: type(value) for name, value in given.items()}
    if types != fields:
        raise Broken(f"its body has {types}, and the proposal has {fields}")


def _encoded(name: str) -> str:
    """Encode a text as `java.net.URLEncoder` does it."""
    return quote_plus(name, safe="*").replace("~", "%7E")
