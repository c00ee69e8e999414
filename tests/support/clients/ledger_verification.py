"""A verification by request of ledgers, without its workflow."""

from __future__ import annotations

from contextlib import ExitStack

from activities.lifecycle.context import ActivityContext
from activities.verification.context import Comparison, MigrationGate
from activities.verification.ledgers import LedgerComparison, LedgerSide
from clients.verification.bookie_entries import BookieEntries
from clients.verification.ledger_records import LedgerRecords
from models.bookie_cluster.input import KIND, Routing
from models.lifecycle.status import ProgressUnit
from models.store_url import StoreUrl
from models.verification.input import VerificationInput
from models.verification.results import Tally
from spark.bookie_cluster.spec import LedgerPair


def verification(pair: LedgerPair, ledgers: str, *, noted: dict[str, str] | None = None) -> Tally:
    """Compare some ledgers, as one attempt at the step of a verification does."""
    values: dict[str, object] = {"cluster": "c", "migration": "m", "migration_run": "r", "migration_input": {}}
    input = VerificationInput.model_validate({**values, "migration_kind": KIND, "ledgers": ledgers})
    context = ActivityContext(noted)
    gate = MigrationGate(lambda: ("ROLLBACK_WINDOW", True), KIND, context)
    comparison = Comparison(context, input, gate, ProgressUnit.LEDGERS)
    with ExitStack() as stack:

        def side(url: StoreUrl) -> LedgerSide:
            records = stack.enter_context(LedgerRecords(url))
            access = pair.access.to(url).bookies
            return LedgerSide(records, stack.enter_context(BookieEntries(records.bookies, access=access, timeout=5.0)))

        LedgerComparison(comparison, side(pair.source), side(pair.target), input.ledger_range, Routing.RESTART).run()
    return comparison.tally
