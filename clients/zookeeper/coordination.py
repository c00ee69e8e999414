"""Small reads and conditional writes on a ZooKeeper store, over kazoo: flags, claims, ephemeral owners.

`CoordinationReader` has no method that writes; `Coordination` adds them. Paths are text, relative to the chroot.
"""

from __future__ import annotations

import contextlib
import re
import struct
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Self, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from clients.cas.store import Check, Create, Delete, Part, Set
from clients.errors import (
    NoCredentials,
    NoServer,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
    VersionConflict,
)
from clients.reach import split_host
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.acl import kazoo_acl
from clients.zookeeper.connection import Connection
from clients.zookeeper.kazoo_handler import Handler
from clients.zookeeper.link import open_socket, why_refused
from clients.zookeeper.sessions import register
from clients.zookeeper.wire import Stat
from models.store_url import StoreUrl

ResultT = TypeVar("ResultT")

#: Seconds that a session, and what it holds, outlives a lost connection.
_SESSION_TIMEOUT = 30.0
#: Seconds after which a server that has not answered is asked in another way why.
_SOON = 1.0
#: By itself kazoo doubles the time between two tries, without an end: writes would stay blocked after an election.
_RECONNECT = {"max_tries": -1, "max_delay": 1.0}
_CONFLICTS = (
    exceptions.BadVersionError,
    exceptions.NodeExistsError,
    exceptions.NoNodeError,
    exceptions.NotEmptyError,
    exceptions.NoChildrenForEphemeralsError,
)
_DENIALS = (
    exceptions.NoAuthError,
    exceptions.AuthFailedError,
    exceptions.InvalidACLError,
    exceptions.SessionClosedRequireSaslError,
)
_LOSSES = (
    KazooTimeoutError,
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.ConnectionDropped,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
    exceptions.OperationTimeoutError,
    exceptions.ZookeeperStoppedError,
)
#: What kazoo raises for a packet that ends early, or that nothing asked for.
_DAMAGES = (struct.error, UnicodeError, IndexError, RuntimeError)
_PLAIN: dict[type[Exception], str] = {
    KazooTimeoutError: "no answer in time",
    exceptions.ConnectionLoss: "the connection was lost",
    exceptions.ConnectionClosedError: "the connection was closed",
    exceptions.SessionExpiredError: "the session has expired",
    exceptions.SessionClosedRequireSaslError: "the server takes only sessions with a login",
}
#: Marks, in the answer to a transaction, the parts that failed only because another one did.
_CONSEQUENCES = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


def _typed(cause: Exception, doing: str, url: StoreUrl, path: str) -> StoreError:
    why = _PLAIN.get(type(cause)) or f"{type(cause).__name__} {cause}".rstrip()
    what = f"{doing} at {url}: {why}"
    server, node = str(url), path.encode()
    if isinstance(cause, _CONFLICTS):
        return VersionConflict(f"{what}; another client changed it; read it again", server=server, path=node)
    if isinstance(cause, _DENIALS):
        return StoreDenied(f"{what}; give credentials that may", server=server, path=node)
    if isinstance(cause, _LOSSES):
        return StoreUnreachable(f"{what}; check the servers and try again", server=server, path=node)
    return StoreProtocolError(what, server=server, path=node)


class CoordinationReader:
    """A session that reads. Use it as a context manager; every call ends within `timeout`.

    Each read sees all that was committed before it, whichever server answers: the server catches up with its leader
    first, in the same round trip.

    Args:
        url: the servers and the chroot.
        access: credentials and TLS settings.
        timeout: seconds that one call, and connecting, may take.

    Raises:
        NoServer: from entering, when none of the addresses leads to a ZooKeeper.
        StoreUnreachable: from entering, when no server answers in time; from any call, when the session is lost.
        StoreDenied: the server or a node's ACL refuses the credentials, or the server's certificate is refused.
    """

    def __init__(self, url: StoreUrl, *, access: ZooKeeperAccess = ANONYMOUS, timeout: float = 10) -> None:
        self.url = url
        self._access = access
        self._timeout = timeout
        self._ending: threading.Thread | None = None
        self._client: Any = KazooClient(  # its results have no types
            hosts=",".join(url.hosts),
            timeout=_SESSION_TIMEOUT,
            handler=Handler(access),
            auth_data=[(scheme, credential.decode()) for scheme, credential in access.auth_pairs()],
            sasl_options=access.login.options() if access.login else None,
            connection_retry=_RECONNECT,
        )
        self._denied = False
        self._protects = access.has_identity
        self._client.add_listener(self._note_denial)

    def __enter__(self) -> Self:
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def _connect(self) -> None:
        for address in self.url.hosts:
            # kazoo connects in a thread of its own, whose errors it only logs.
            self._access.check(split_host(address)[0])
        end = time.monotonic() + self._timeout
        with self._errors("connecting"):
            connected = self._client.start_async()
        is_served = self._await_service(connected, min(_SOON, self._timeout))
        if not is_served:
            # kazoo tries again and again, and never says why.
            self._require_server()
            if not self._denied:
                is_served = self._await_service(connected, max(end - time.monotonic(), 0))
        if not is_served:
            if self._denied:
                raise _typed(exceptions.AuthFailedError(), "connecting", self.url, "")
            text = f"{self.url} gave no session in {self._timeout:g} s; is its ensemble complete?"
            raise StoreUnreachable(text, server=str(self.url))
        register(self)

    def _await_service(self, connected: threading.Event, limit: float) -> bool:
        """Return whether there is a session within some seconds, and its login is done."""
        end = time.monotonic() + limit
        if not connected.wait(limit) or not self._client.connected:
            return False
        if self._access.login:
            # kazoo says that it is connected before it logs in.
            try:
                self._client.sync_async("/").get(timeout=max(end - time.monotonic(), 0))
            except (exceptions.KazooException, KazooTimeoutError):
                return False
        return True

    def _note_denial(self, _: str) -> None:
        # A server gives a session first, and refuses the credentials then. A moment later kazoo says "closed".
        if self._client.client_state == KeeperState.AUTH_FAILED:
            self._denied = True

    def _require_server(self) -> None:
        """Raise what a connection of our own says, if it says that waiting cannot help."""
        limits = {"timeout": self._timeout / 4, "session_timeout": _SESSION_TIMEOUT}
        try:
            Connection(self.url, access=self._access, **limits).close()
        except (NoServer, StoreDenied, NoCredentials):
            raise
        except StoreError:
            return

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes; harmless when done twice."""
        if not self._ending:
            # kazoo waits for a server that hangs, and longer than a call may take.
            self._ending = threading.Thread(target=self._end, name="zookeeper-coordination-end", daemon=True)
            self._ending.start()
        self._ending.join(self._timeout)

    def _end(self) -> None:
        with contextlib.suppress(exceptions.KazooException):
            self._client.stop()
            self._client.close()

    @property
    def session_id(self) -> int:
        """Id of the session, as `Stat.ephemeral_owner` shows it."""
        session: tuple[int, bytes] | None = self._client.client_id
        if session is None:
            raise StoreUnreachable(
                f"there is no session with {self.url}; check the servers and try again", server=str(self.url)
            )
        return session[0]

    def get(self, path: str) -> tuple[bytes, Stat] | None:
        """Return value and statistics, None if there is no such node."""
        with self._errors("reading", path), contextlib.suppress(exceptions.NoNodeError):
            value, stat = self._read(path, self._client.get_async)
            return value or b"", Stat._make(stat)
        return None

    def children(self, path: str) -> list[str]:
        """Return names of the children, sorted; `[]` if there is no such node."""
        with self._errors("listing", path), contextlib.suppress(exceptions.NoNodeError):
            return sorted(self._read(path, self._client.get_children_async))
        return []

    def exists(self, path: str) -> Stat | None:
        """Return statistics, None if there is no such node."""
        with self._errors("looking for", path):
            stat = self._read(path, self._client.exists_async)
        return Stat._make(stat) if stat else None

    def _read(self, path: str, start: Callable[[str], Any]) -> Any:
        absolute = self._absolute(path)
        # A follower may lag: without this a superseded attempt could read its own old claim and pass the fence.
        # Both requests are sent at once, because a server answers a session in order.
        synced, pending = self._client.sync_async(absolute), start(absolute)
        self._wait(synced)
        return self._wait(pending)

    def _absolute(self, path: str) -> str:
        """Return a path with the chroot, which kazoo itself could not create if it does not exist."""
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")
        return self.url.root + path if path != "/" else self.url.root or path

    @contextlib.contextmanager
    def _errors(self, doing: str, path: str = "") -> Generator[None]:
        try:
            yield
        except (exceptions.KazooException, KazooTimeoutError, *_DAMAGES) as cause:
            why = exceptions.AuthFailedError() if self._denied else cause
            raise _typed(why, f"{doing} {path}".rstrip(), self.url, path) from cause

    def _wait(self, pending: Any) -> Any:
        return pending.get(timeout=self._timeout)


class Coordination(CoordinationReader):
    """A session that reads and writes. What it writes is conditional: on absence, or on a version.

    A write that is not answered in time ends the session, so that it is not sent later on; whether it happened, or
    still will, is for the caller to read back over a new session.
    """

    def create(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Create a node; returns its path, which `sequence` extends by ten digits.

        Raises:
            VersionConflict: it exists already, or its parent does not and `parents` is false.
        """

        def create() -> str:
            acl = kazoo_acl(path, protects=self._protects)
            options = {"acl": acl, "ephemeral": ephemeral, "sequence": sequence}
            return self._write(
                "creating", path, lambda: self._client.create_async(self._absolute(path), value, **options)
            )

        try:
            created = self._unprotected_if_unknown(create)
        except VersionConflict as conflict:
            if not (parents and isinstance(conflict.__cause__, exceptions.NoNodeError)):
                raise
            self._create_parents(path)
            created = self._unprotected_if_unknown(create)
        return created[len(self.url.root) :]

    def _create_parents(self, path: str) -> None:
        # Each with an ACL of its own, unlike kazoo's: brokers have nodes beneath some of them.
        parent = path.rpartition("/")[0]
        if parent:
            with contextlib.suppress(VersionConflict):
                self.create(parent, parents=True)
        else:
            self._write("creating", "/", lambda: self._client.ensure_path_async(self.url.root))

    def set(self, path: str, value: bytes, version: int) -> Stat:
        """Set the value of a node that has this version (-1 means any); returns its new statistics.

        Raises:
            VersionConflict: it has another version, or does not exist.
        """
        return Stat._make(
            self._write("setting", path, lambda: self._client.set_async(self._absolute(path), value, version))
        )

    def delete(self, path: str, version: int) -> None:
        """Delete a node that has this version (-1 means any).

        Raises:
            VersionConflict: it has another version, does not exist, or has children.
        """
        self._write("deleting", path, lambda: self._client.delete_async(self._absolute(path), version))

    def commit(self, parts: Sequence[Part]) -> None:
        """Apply all of these or none.

        Raises:
            VersionConflict: one of them cannot be done; the message names it.
        """
        self._unprotected_if_unknown(lambda: self._commit(parts))

    def _commit(self, parts: Sequence[Part]) -> None:
        transaction = self._client.transaction()
        for change in parts:
            match change:
                case Create(path, value):
                    acl = kazoo_acl(path, protects=self._protects)
                    transaction.create(self._absolute(path), value, acl=acl)
                case Set(path, value, version):
                    transaction.set_data(self._absolute(path), value, version)
                case Delete(path, version):
                    transaction.delete(self._absolute(path), version)
                case Check(path, version):
                    transaction.check(self._absolute(path), version)
        results = self._write(f"committing {len(parts)} changes", "", transaction.commit_async)
        for change, result in zip(parts, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _CONSEQUENCES):
                doing = f"committing {type(change).__name__.lower()} of {change.path}"
                raise _typed(result, doing, self.url, change.path) from result

    def _unprotected_if_unknown(self, write: Callable[[], ResultT]) -> ResultT:
        """Write; do it again without an ACL of ours if the server does not know who we are.

        That is so where our certificate is all that we have, and the server did not ask for it.
        """
        try:
            return write()
        except StoreDenied as denied:
            if not (self._protects and isinstance(denied.__cause__, exceptions.InvalidACLError)):
                raise
        self._protects = False
        return write()

    def _write(self, doing: str, path: str, start: Callable[[], Any]) -> Any:
        with self._errors(doing, path):
            try:
                return self._wait(start())
            except KazooTimeoutError:
                self.close()
                raise


def four_letter(host: str, command: str, *, access: ZooKeeperAccess = ANONYMOUS, timeout: float = 5) -> str | None:
    """Answer of one server to a four letter command such as `srvr`, `cons` or `dump`; None if it is not allowed there.

    Args:
        host: `host:port`.
        command: the command.
        access: TLS settings.
        timeout: seconds without a byte before it fails.

    Raises:
        StoreUnreachable: the server does not answer.
        StoreDenied: its certificate is refused, or ours.
    """
    answer = b""
    try:
        with open_socket(*split_host(host), access, timeout) as connection:
            connection.sendall(command.encode())
            while chunk := connection.recv(1 << 16):
                answer += chunk
            if not answer:
                raise StoreUnreachable("it closed the connection", server=host)
    except (OSError, StoreUnreachable) as cause:
        why = why_refused(host, access, cause, timeout)
        kind = StoreDenied if isinstance(why, StoreDenied) else StoreUnreachable
        raise kind(f"{host} does not answer `{command}`: {why}; check the server", server=host) from cause
    text = answer.decode(errors="replace")
    return None if "not in the whitelist" in text else text


def zookeeper_release(host: str, *, access: ZooKeeperAccess = ANONYMOUS, timeout: float = 5) -> str:
    """Return the release of one server, `3.9.4` for example; empty if it does not answer, or may not tell.

    Args:
        host: `host:port`.
        access: TLS settings.
        timeout: seconds.
    """
    answer = ""
    # One server of an ensemble may be down; what needs it says so.
    with contextlib.suppress(StoreUnreachable):
        answer = four_letter(host, "srvr", access=access, timeout=timeout) or ""
    match = re.match(r"Zookeeper version: ([0-9.]+)", answer)
    return match[1].rstrip(".") if match else ""
