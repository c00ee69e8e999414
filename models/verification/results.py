"""Certificate of a verification, and its state between two attempts."""

from __future__ import annotations

from hashlib import sha256

from pydantic import BaseModel, Field

from models.base import Result
from models.lifecycle.fields import Time
from models.lifecycle.units import Count, Quantity, Unit

NAMED = 20
"""Items of a kind that a certificate names."""

_SIZE = Unit(Quantity.SIZE)


class Named(BaseModel):
    """Items of one kind: all are counted, and the first ones are named.

    Attributes:
        count: of all.
        items: the first ones, each with what was seen.
    """

    count: int = 0
    items: list[str] = Field(default_factory=list[str])

    def add(self, item: str) -> None:
        """Count an item, and name it if few are named."""
        self.count += 1
        if len(self.items) < NAMED:
            self.items.append(item)


class Tally(BaseModel):
    """Counts of what was compared so far, which an attempt notes for the next one.

    Attributes:
        position: of the reader, which continues after it; empty at the start.
        seen: records or ledgers that were read.
        equal: those of them that are equal on both sides, with `equal_bytes`.
        digest: SHA-256 over all equal ones in their order, each with the digest of those before it.
        differing: those that are not equal.
        unreadable: those that one side did not return.
        excluded: those that are not compared, by reason.
        pending: differences that may be changes on their way; each with what was seen of the source.
    """

    position: list[str] = Field(default_factory=list[str])
    seen: int = 0
    equal: int = 0
    equal_bytes: int = 0
    digest: str = ""
    differing: Named = Field(default_factory=Named)
    unreadable: Named = Field(default_factory=Named)
    excluded: dict[str, Named] = Field(default_factory=dict[str, Named])
    pending: dict[str, str] = Field(default_factory=dict[str, str])

    def add_equal(self, item: bytes, size: int) -> None:
        """Add an item that is equal on both sides.

        Args:
            item: identifies it and its content.
            size: bytes that were compared.
        """
        self.equal += 1
        self.equal_bytes += size
        self.digest = sha256(bytes.fromhex(self.digest) + sha256(item).digest()).hexdigest()

    def exclude(self, reason: str, item: str) -> None:
        """Add an item that is not compared."""
        self.excluded.setdefault(reason, Named()).add(item)


class VerificationCertificate(Result):
    """Result of a verification.

    Attributes:
        migration: workflow id of the migration.
        migration_run: id of its first run.
        scope: what was compared.
        source: its address.
        target: its address.
        committed: services had moved to the target before the end, so that what is newer there is not compared.
        compared: equal and differing items.
        equal: items that are equal on both sides, with `equal_bytes`.
        differing: items that are not, the first ones with names.
        unreadable: items that a side did not return.
        excluded: items that are not compared, by reason.
        sha256: over all equal items in their order, each with the digest of those before it.
        method: what is compared of an item.
        attempts: attempts of the step; each continues after what the one before has compared.
    """

    migration: str
    migration_run: str
    scope: str
    source: str
    target: str
    committed: bool
    compared: Count
    equal: Count
    equal_bytes: int
    differing: Named
    unreadable: Named
    excluded: dict[str, Named]
    sha256: str
    method: str
    started: Time
    ended: Time
    attempts: int

    @property
    def holds(self) -> bool:
        """True if something was compared, all of it is equal, and everything was readable."""
        return self.compared > 0 and not self.differing.count and not self.unreadable.count

    def lines(self) -> list[str]:
        """Return the certificate as text."""
        result = "equal" if self.holds else "NOT EQUAL" if self.compared else "NOTHING COMPARED"
        lines = [
            f"result     {result}: {self.equal:,} of {self.compared:,} equal, {_SIZE.format(self.equal_bytes)}",
            f"migration  {self.migration}, {'after' if self.committed else 'before'} the commit",
            f"sides      {self.source} → {self.target}",
            f"scope      {self.scope}",
            f"method     {self.method}",
        ]
        for label, named in (("differs", self.differing), ("unreadable", self.unreadable)):
            lines += [f"{label:<10} {item}" for item in named.items]
            if named.count > len(named.items):
                lines.append(f"{label:<10} and {named.count - len(named.items):,} more")
        for reason, named in sorted(self.excluded.items()):
            shown = ", ".join(named.items[:3]) + (" …" if named.count > min(3, len(named.items)) else "")
            lines.append(f"excluded   {named.count:,} {reason}: {shown}")
        lines.append(f"sha256     {self.sha256 or 'nothing was compared'}")
        return lines
