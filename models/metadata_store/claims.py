"""What the metadata store migration keeps in its claims: one in the source, one in the target."""

from __future__ import annotations

from models.lifecycle.claim import Claim, PacedClaim

SOURCE, TARGET = "source", "target"


class SourceClaim(Claim):
    """The claim in the source; live, it also names who set the migration flag.

    Attributes:
        side: tells it from a claim in the target: two names of one store show the same record.
        flag_version: version of the flag as this migration last set it; -1 before that.
        blocked_since_ms: when writes were blocked, by the source's clock.
        moved_ms: when the flag was moved to its phase, once it was set to that again; 0 before.
        settled_zxid: what changed later than this transaction id was perhaps not copied before the commit.
        settled_target: what services write to the target comes behind this: a transaction id on ZooKeeper, a version
            id on Oxia. In PREPARATION of the moment before the flag was set.
    """

    side: str = SOURCE
    flag_version: int = -1
    blocked_since_ms: int = 0
    moved_ms: int = 0
    settled_zxid: int = 0
    settled_target: int = 0


class TargetClaim(PacedClaim):
    """The claim in the target.

    Attributes:
        side: tells it from a claim in the source.
        source: from where its holder copies.
        ours: whether what stands in the target is its holder's copy: it was seen empty once the claim stood, or the
            records of others, which `replace_target` gives up, were deleted.
        copying: whether bulk tasks of its holder may run: it began to copy, and did not see all of them end.
    """

    side: str = TARGET
    source: str = ""
    ours: bool = False
    copying: bool = False
