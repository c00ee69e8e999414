"""Changes that must not arrive late, for servers that cannot check a fence.

A worker that freezes between its check of the fence and its request sends the request when it continues, perhaps long
after its migration was rolled back. So connections are opened before the check, and never after it: a broker closes a
connection without requests after a while, and an attempt that froze for longer sends to a closed connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self, TypeVar

import httpcore

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.connections import Connections, Network
from clients.pulsar.admin.errors import AdminError, AdminServerError, AdminUnreachable, AdminUntrusted
from clients.pulsar.admin.http import HttpSession

ResultT = TypeVar("ResultT")

IDLE_LIMIT = 35.0
"""Seconds after which no late request can arrive: brokers close a connection without requests after 30 s."""


class ChangeOrNever(Protocol):
    """Client that makes a change right after its fence, or never; see `change_or_never`."""

    def __call__(
        self,
        *,
        connect: Callable[[PulsarAdmin], object],
        fence: Callable[[], object],
        change: Callable[[PulsarAdmin], Any],
    ) -> object:
        """Make the change.

        Raises:
            AdminError: there was no answer, or one that is not a success.
        """
        ...


class FencedAdmin(PulsarAdmin):
    """An admin interface of which each change is fenced; `or_never` makes those that must not arrive late.

    Args:
        session: sends the other requests; may be shared.
        urls: addresses of brokers of one cluster.
        fence: called right before each change, which is not sent if it raises.
        change_or_never: makes the changes that must not arrive late.
    """

    def __init__(
        self,
        session: HttpSession,
        urls: Sequence[str],
        fence: Callable[[], None],
        change_or_never: ChangeOrNever,
    ) -> None:
        super().__init__(session, urls, fence)
        self._fence, self._change_or_never = fence, change_or_never

    @classmethod
    def of(cls, admin: PulsarAdmin, fence: Callable[[], None], change_or_never: ChangeOrNever) -> Self:
        """Return the same admin interface with a fence; its session stays `admin`'s to close."""
        return cls(admin.session, admin.urls, fence, change_or_never)

    def or_never(self, *, connect: Callable[[PulsarAdmin], object], change: Callable[[PulsarAdmin], Any]) -> Any:
        """Make a change; see `change_or_never`."""
        return self._change_or_never(connect=connect, fence=self._fence, change=change)


class _Opening(Network):
    """Opens connections until it is sealed."""

    sealed = False

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        if self.sealed:
            raise httpcore.ConnectError("the connection that was opened before the fence was asked is closed")
        return super().connect_tcp(host, port, timeout, local_address, socket_options)


class _OpenedBefore(Connections):
    """A transport that opens no connection any more once it is sealed."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._opening = _Opening()
        super().__init__(context, network=self._opening, keep_alive=None)

    def seal(self) -> None:
        """Open no connection any more."""
        self._opening.sealed = True


def change_or_never(
    access: AdminAccess,
    urls: Sequence[str],
    *,
    connect: Callable[[PulsarAdmin], object],
    fence: Callable[[], object],
    change: Callable[[PulsarAdmin], ResultT],
) -> ResultT:
    """Make a change that arrives within `IDLE_LIMIT` of the check of the fence, or never.

    Args:
        access: timeout, TLS and credentials.
        urls: addresses of brokers; the next is asked where one cannot be reached, or has closed the connection.
        connect: a request that opens connections, also where it is sent on to another broker as the change will be; its
            answer does not matter, and may be that nothing is there, or an error.
        fence: raises if another attempt has taken over; asked when the connections are open.
        change: the change, in one request.

    Raises:
        AdminError: there was no answer, or one that is not a success.
    """
    untold: AdminUnreachable | None = None
    failing = False
    # Brokers answer 500 where a topic is gone. One that fails at everything answers so too: others are asked first.
    for url, any_answer in [*((url, False) for url in urls), *((url, True) for url in urls)]:
        if any_answer and not failing:
            break
        transport = _OpenedBefore(access.tls.shared_context())
        with HttpSession(access, transport=transport) as session:
            admin = PulsarAdmin(session, [url])
            try:
                connect(admin)
            except AdminServerError as error:
                untold, failing = error, True
                if not any_answer:
                    continue
            except AdminUnreachable as error:
                untold = error
                continue
            except AdminUntrusted:
                raise
            except AdminError:
                # An answer, even an error, shows that the connection is open.
                pass
            transport.seal()  # mutant: scalable-topic/late-requests-open-connections
            fence()
            try:
                return change(admin)
            except AdminUnreachable as error:
                if error.sent:
                    raise
                untold = error
    assert untold is not None, "there is an address"
    raise untold
