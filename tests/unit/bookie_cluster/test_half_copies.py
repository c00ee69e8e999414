"""What is reported of ledgers whose open copies stay in the target, with doubles of everything around."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from activities.bookie_cluster import ledger_copier
from activities.bookie_cluster.ledger_copier import LedgerCopier
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from tests.support.bookie_cluster.in_memory import answering
from tests.support.bookie_cluster.records import by_id, ledger


def test_a_half_copied_ledger_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason of a failure says where an open copy stays, which brokers would take for the whole ledger."""
    outcomes = [
        CopyOutcome(1, Verdict.UNREADABLE, detail="no answer", transient=True, begun=Begun(-1, 0, 5)),
        CopyOutcome(2, Verdict.NOT_RECOVERED, detail="no answer", transient=True),
    ]

    def copy(*_: object, on_outcomes: Any, **__: object) -> None:
        on_outcomes(outcomes)

    monkeypatch.setattr(ledger_copier, "_PATIENCE", -1.0)
    monkeypatch.setattr(ledger_copier, "replace", answering(lambda: None))
    monkeypatch.setattr(ledger_copier.ledger_jobs, "copy", copy)
    task, verified = MagicMock(), MagicMock()
    task.ends.target.name = "b"
    task.ledgers.return_value.__enter__.return_value.read.return_value = [None, None]
    verified.begun, verified.copies, verified.originals = {}, {}, {}
    copier = LedgerCopier(task, MagicMock(), verified, urgent=True)
    copier.copy(by_id(ledger(number) for number in (1, 2)))
    assert "its open copy stays in b" in copier.failed[1]
    assert "its open copy" not in copier.failed[2]
