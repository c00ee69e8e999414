"""Arguments of updates of a running bookie cluster migration."""

from __future__ import annotations

from pydantic import Field

from models.base import Frozen, Result
from models.bookie_registry import ReadMode
from models.lifecycle.fields import Bool


class CleanupOrder(Frozen):
    """Argument of the update `clean_up` (PIP-477, "CLI Commands").

    Attributes:
        src_cluster: the cluster to clean; must be the one that the switch left.
        dry_run: only list what would be deleted.
        max_deletions: most ledgers to delete.
        force: delete although a broker still seems to use the old cluster, or copies may lack replicas; with
            `exclusive` also ledgers that nothing refers to and that were never copied. What is referred to and not
            verified in the new cluster is never deleted.
    """

    src_cluster: str
    dry_run: Bool = False
    max_deletions: int | None = Field(default=None, ge=1)
    force: Bool = False


class Concurrency(Frozen):
    """Argument of the update `set_concurrency`: batches of ledgers that are copied at once."""

    batches: int = Field(ge=1, le=1024)


class Pace(Frozen):
    """How fast the copy goes: megabytes of entries per second (None: no limit), and batches of ledgers at once."""

    throttle: float | None
    concurrency: int


class ReadModeChange(Frozen):
    """Argument of the update `set_read_mode`."""

    mode: ReadMode


class TargetLoss(Frozen):
    """Argument of the update `rollback_without_target`: the target, which is lost with all that only it has."""

    cluster: str


class TargetLossAnswer(Result):
    """Answer of the update `rollback_without_target`.

    Attributes:
        cluster: the target.
        approved: the rollback does without it; if not, another person must send the same update.
    """

    cluster: str
    approved: bool = True


class ClientClosing(Frozen):
    """Argument of the update `close_client`: the old cluster, whose client brokers must close."""

    cluster: str
