"""What holds a writing task: it stops when its attempt is superseded, and keeps to the throttle."""

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

# For so long a superseded task may continue; each look is a read of a store that services use.
_CLAIM_EVERY = 1.0
_LEAST_WAIT = 0.05


class WriteFence:
    """Account of what one task writes on behalf of one attempt.

    Args:
        read_claim: reads the claim again; None if nobody holds one any more.
        attempt: that the task belongs to.
        what: the claim is in, for messages.
        parallelism: how many tasks share the throttle.
        paced: whether the throttle counts. It is there to spare services, and not while they are blocked until this
            work is done.
        sleep: waits for at most so many seconds.
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
        self._spent_until = time.monotonic()

    def check(self, size: int) -> None:
        """Account for bytes that are written next; waits while they are more than the throttle allows.

        Raises:
            Superseded: a newer attempt or run has taken the claim, or this run has ended.
            ClaimHeld: another migration holds it.
        """
        now = time.monotonic()
        # The clock runs on while a process is frozen: one that wakes up looks before its next batch.
        if now >= self._due:  # mutant: shared/executor-does-not-check
            self.look()
        if self._rate:
            self._spent_until = max(self._spent_until, now) + size / self._rate
            while (wait := self._spent_until - time.monotonic()) > _LEAST_WAIT and self._rate:
                # In pieces: a limit that is lifted, and a newer attempt, count within a second.
                self._sleep(min(wait, _CLAIM_EVERY))
                self.look()

    def look(self) -> None:
        """Read the claim now.

        Raises:
            Superseded, ClaimHeld: see `check`.
        """
        # From the question on: a freeze with the answer in hand must not make that answer fresh.
        asked = time.monotonic()
        claim = self._read_claim()
        require_newest(claim, self._attempt, self._what)  # mutant: shared/executor-reads-and-continues
        # mutant: shared/throttle-while-clients-are-blocked
        throttle = claim.throttle if claim and self._paced else None
        self._rate = throttle * 1e6 / self._parallelism if throttle else None
        self._due = asked + _CLAIM_EVERY  # mutant: shared/fence-is-fresh-from-its-answer-on


def claim_in(store: StoreReader, path: str, kind: type[ClaimT]) -> ClaimT | None:
    """A claim as an executor reads it, over a connection that it has in any case; None if nobody holds one.

    Raises:
        StoreConflict: the record is no claim.
    """
    (found,) = store.read([path.encode()])
    return parse_claim(found.value, kind, path, store.url) if isinstance(found, Record) else None


def require_phase(source: StoreReader, phases: Collection[FlagPhase]) -> None:
    """Require that the migration flag of a source is in one of these phases; only a ZooKeeper has a flag.

    Raises:
        Superseded: it is in another one, in which services, or Pulsar's own command, write to the target.
    """
    if source.url.scheme != "zk":
        return
    (found,) = source.read([FLAG.encode()])
    if (
        isinstance(found, Record)
        and found.value
        and (flag := Flag.model_validate_json(found.value)).phase not in phases
    ):
        raise Superseded(
            f"the migration flag of {source.url} is {flag.phase} (target {flag.targetUrl}); this step came too late to "
            "write to the target"
        )


@contextmanager
def write_fence(
    store: StoreUrl, access: Access, claim: str, attempt: Attempt, *, parallelism: int, paced: bool = True
) -> Generator[WriteFence]:
    """A fence over a connection of its own.

    Args:
        store: that has the claim.
        access: credentials and timeout.
        claim: its path.
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
