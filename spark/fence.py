"""The fence of a writing task: the task stops when its attempt is superseded or held, and keeps to the throttle."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from clients.cas.claims import parse_claim, require_newest
from clients.errors import Superseded
from clients.store import Record, StoreReader
from clients.stores import Access, open_reader
from models.lifecycle.claim import Attempt, Claim, PacedClaim
from models.migration_flag import FLAG, Flag, FlagPhase
from models.store_url import StoreUrl

ClaimT = TypeVar("ClaimT", bound=Claim)

# A superseded task may continue this long; each check reads from a store that services use.
_CLAIM_EVERY = 1.0
_LEAST_WAIT = 0.05
# A short stop costs no second start of the task, which reads again what it has copied.
_KEEPS_SLOT = 20.0


class CopyHeld(Exception):
    """A task gives its slot back, because its copy is held; it starts again when the copy continues."""


class WriteFence:
    """Fence and throttle of one task's writes on behalf of one attempt.

    Args:
        read_claim: reads the claim again; None if no migration holds one.
        attempt: attempt that the task belongs to.
        what: name of what is claimed, for messages.
        parallelism: how many tasks share the throttle.
        paced: whether throttle and hold apply. They spare services; while these are blocked until this work is done,
            they would only prolong that.
        sleep: waits for at most this many seconds.
    """

    def __init__(
        self,
        read_claim: Callable[[], PacedClaim | None],
        *,
        attempt: Attempt,
        what: str,
        parallelism: int,
        paced: bool = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_claim = read_claim
        self._attempt = attempt
        self._what = what
        self._parallelism = parallelism
        self._paced = paced
        self._sleep = sleep
        self._due = 0.0
        self._rate: float | None = None
        self._held = False
        self._spent_until = time.monotonic()

    def check(self, size: int) -> None:
        """Count bytes before they are written; wait while they exceed the throttle, or the copy is held.

        Raises:
            Superseded: a newer attempt or run has taken the claim, or this run has ended.
            ClaimHeld: another migration holds it.
            CopyHeld: the copy is held for longer.
        """
        now = time.monotonic()
        # The clock continues while a process is frozen, so a process that wakes up checks before its next batch.
        if now >= self._due:  # mutant: shared/executor-does-not-check
            self.read_claim()
        if self._rate:
            self._spent_until = max(self._spent_until, now) + size / self._rate
            while (wait := self._spent_until - time.monotonic()) > _LEAST_WAIT and self._rate:
                # In short waits: another limit and a newer attempt take effect within a second.
                self._sleep(min(wait, _CLAIM_EVERY))
                self.read_claim()
        self._wait_while_held()

    def read_claim(self) -> None:
        """Read the claim now.

        Raises:
            Superseded, ClaimHeld: see `check`.
        """
        # Measure age from the request, so that a process that froze with the response reads the claim again.
        asked = time.monotonic()
        claim = self._read_claim()
        require_newest(claim, self._attempt, self._what)  # mutant: shared/executor-reads-and-continues
        # mutant: shared/throttle-while-clients-are-blocked
        throttle = claim.throttle if claim and self._paced else None
        rate = throttle * 1e6 / self._parallelism if throttle else None
        now = time.monotonic()
        # What is owed is bytes: with another limit it takes another time.
        owed = max(0.0, self._spent_until - now) * self._rate / rate if self._rate and rate else 0.0
        self._rate, self._spent_until = rate, now + owed
        # mutant: shared/hold-while-clients-are-blocked, shared/hold-of-a-lost-attempt
        self._held = claim is not None and self._paced and claim.held == self._attempt.mark
        self._due = asked + _CLAIM_EVERY  # mutant: shared/fence-is-fresh-from-its-answer-on

    def _wait_while_held(self) -> None:
        given_back = time.monotonic() + _KEEPS_SLOT
        while self._held:
            if time.monotonic() > given_back:
                raise CopyHeld
            self._sleep(_CLAIM_EVERY)
            self.read_claim()


def claim_in(store: StoreReader, path: str, kind: type[ClaimT]) -> ClaimT | None:
    """Return a claim, read over a connection that the executor has anyway; None if no migration holds one.

    Raises:
        StoreConflict: the record is not a claim.
    """
    (record,) = store.read([path.encode()])
    return parse_claim(record.value, kind, path, store.url) if isinstance(record, Record) else None


def require_phase(source: StoreReader, phases: Collection[FlagPhase]) -> None:
    """Require that the migration flag of a source is in one of these phases; only ZooKeeper has a flag.

    Raises:
        Superseded: the flag is in another phase, in which services, or Pulsar's own command, write to the target.
    """
    if source.url.scheme != "zk":
        return
    (record,) = source.read([FLAG.encode()])
    if (
        isinstance(record, Record)
        and record.value
        and (flag := Flag.model_validate_json(record.value)).phase not in phases
    ):
        raise Superseded(
            f"the migration flag of {source.url} is {flag.phase} (target {flag.targetUrl}); this step came too late to "
            "write to the target"
        )


@contextmanager
def write_fence(
    store: StoreUrl, access: Access, claim: str, attempt: Attempt, *, parallelism: int, paced: bool = True
) -> Generator[WriteFence]:
    """Open a fence over a connection of its own.

    Args:
        store: store that has the claim.
        access: credentials and timeout.
        claim: path of the claim.
        attempt: see `WriteFence`, as for `parallelism` and `paced`.
        parallelism: see there.
        paced: see there.
    """
    with open_reader(store, access) as reader:
        yield WriteFence(
            partial(claim_in, reader, claim, PacedClaim),
            attempt=attempt,
            what=str(store),
            parallelism=parallelism,
            paced=paced,
        )
