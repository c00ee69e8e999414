"""Our record in the target: which attempt may write there, and how fast."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from clients.errors import StoreConflict
from clients.oxia.client import OxiaClient
from clients.stores import Access
from clients.zookeeper.coordination import Coordination
from models.metadata_store.flag import CLAIM, Claim
from models.store_url import StoreUrl


class TargetClaim:
    """The claim in the target, changed by compare-and-set only; a context manager.

    Args:
        url: the target.
        access: credentials and timeout.
        workflow_id: the migration that claims.
        run_id: its run.
    """

    def __init__(self, url: StoreUrl, access: Access, workflow_id: str, run_id: str) -> None:
        self._url = url
        self._me = (workflow_id, run_id)
        self._zookeeper: Coordination | None = None
        self._oxia: OxiaClient | None = None
        if url.scheme == "zk":
            self._zookeeper = Coordination(url, auth=access.zookeeper_auth, timeout=access.timeout)
        else:
            self._oxia = OxiaClient(url, timeout=access.timeout)

    def __enter__(self) -> Self:
        if self._zookeeper:
            self._zookeeper.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._zookeeper:
            self._zookeeper.__exit__(kind, error, trace)
        if self._oxia:
            self._oxia.close()

    def take(self, throttle: float | None) -> Claim:
        """Claim the target for a new attempt; every earlier attempt stops within a second.

        Raises:
            StoreConflict: another migration holds the target.
        """
        found = self._read()
        if found is None:
            claim = Claim(workflow_id=self._me[0], run_id=self._me[1], attempt=1, throttle=throttle)
            self._write(claim, -1)
            return claim
        old, version = found
        self._must_be_mine(old)
        claim = Claim(workflow_id=self._me[0], run_id=self._me[1], attempt=old.attempt + 1, throttle=throttle)
        self._write(claim, version)
        return claim

    def set_throttle(self, throttle: float | None) -> None:
        """Change the speed of the attempt that runs; nothing happens where none does.

        Raises:
            StoreConflict: another migration holds the target.
        """
        found = self._read()
        if found is not None:
            self._must_be_mine(found[0])
            self._write(found[0].model_copy(update={"throttle": throttle}), found[1])

    def require(self) -> None:
        """The fence of an offline migration: make sure that this run holds the target.

        Raises:
            StoreConflict: it does not: this attempt is a late one, and must not write.
        """
        found = self._read()
        if found is None or (found[0].workflow_id, found[0].run_id) != self._me:
            raise StoreConflict(f"this run does not hold the target {self._url} any more")

    def is_mine(self) -> bool:
        """Whether this migration, in this run or an earlier one, holds the target."""
        found = self._read()
        return found is not None and found[0].workflow_id == self._me[0]

    def drop(self) -> None:
        """Remove the claim; harmless where there is none.

        Raises:
            StoreConflict: another migration holds the target.
        """
        found = self._read()
        if found is None:
            return
        self._must_be_mine(found[0])
        if self._zookeeper:
            self._zookeeper.delete(CLAIM, found[1])
        elif self._oxia:
            self._oxia.delete(CLAIM.encode(), found[1])

    def _must_be_mine(self, claim: Claim) -> None:
        if claim.workflow_id != self._me[0]:
            raise StoreConflict(
                f"the target {self._url} is held by the migration {claim.workflow_id!r} (run {claim.run_id}); let that "
                "one end, or choose another target"
            )

    def _read(self) -> tuple[Claim, int] | None:
        if self._zookeeper:
            node = self._zookeeper.get(CLAIM)
            return None if node is None else (Claim.model_validate_json(node[0]), node[1].version)
        assert self._oxia is not None
        record = self._oxia.get(CLAIM.encode())
        return None if record is None else (Claim.model_validate_json(record.value), record.version)

    def _write(self, claim: Claim, expected: int) -> None:
        value = claim.model_dump_json().encode()
        if self._oxia:
            self._oxia.put(CLAIM.encode(), value, expected)
        elif self._zookeeper and expected < 0:
            self._zookeeper.create(CLAIM, value, parents=True)
        elif self._zookeeper:
            self._zookeeper.set(CLAIM, value, expected)
