"""Claims of the metadata store migration: one in the source, one in the target."""

from __future__ import annotations

from pydantic import Field

from models.lifecycle.claim import Claim, PacedClaim

SOURCE, TARGET = "source", "target"


class SourceClaim(Claim):
    """The claim in the source; in live mode it also names the migration that set the flag.

    Attributes:
        side: differs from the claim in the target, in case both addresses name the same store.
        flag_version: version of the flag as this migration last set it; -1 before that.
        blocked_since_ms: when writes were blocked, by the source's clock.
        moved_ms: when the flag got its phase, if it was set again since; else 0.
        copied_zxid: changes after this transaction id may not have been copied before the commit.
        target_mark: services' writes to the target are after this: a transaction id on ZooKeeper, a version id on Oxia.
        target_marks: the same by shard, from right before PREPARATION; empty in later phases.
        copying: copies of its holder may run, or be on their way: some were started, and not all are known to have
            ended.
    """

    side: str = SOURCE
    flag_version: int = -1
    blocked_since_ms: int = 0
    moved_ms: int = 0
    copied_zxid: int = 0
    target_mark: int = 0
    target_marks: dict[int, int] = Field(default_factory=dict[int, int])
    copying: bool = False

    def mark_of(self, shard: int) -> int:
        """Return the mark of a shard of the target; every later write to it is after that."""
        return self.target_marks.get(shard, self.target_mark)


class TargetClaim(PacedClaim):
    """The claim in the target.

    Attributes:
        side: differs from the claim in the source.
        source: from which its holder copies.
        ours: the target has only its holder's copy: it was empty when claimed, or `replace_target` deleted other
            records.
    """

    side: str = TARGET
    source: str = ""
    ours: bool = False
