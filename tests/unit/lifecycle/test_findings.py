"""Findings of prechecks: what is a blocker, and what is worth another attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import ActivityEnvironment

from activities.lifecycle.precheck import Findings
from clients.errors import NoServer, StoreDenied, StoreError, StoreUnreachable
from clients.pulsar.admin.errors import AdminUnreachable

TIMEOUT = AdminUnreachable("timed out", method="GET", url="http://broker:8080/admin/v2/clusters")


def codes(error: StoreError, attempt: int) -> list[str]:
    """Return the codes of the blockers that an attempt notes for an error of a check."""
    findings = Findings()

    def check() -> None:
        raise error

    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    assert not environment.run(findings.check, "the brokers", check)
    return [blocker.code for blocker in findings.blockers]


@pytest.mark.parametrize("error", [TIMEOUT, StoreUnreachable("connection lost")])
def test_a_moment_of_silence_is_no_blocker(error: StoreError) -> None:
    """A timeout or a lost connection ends a migration only if it comes again in the third attempt of the activity."""
    for attempt in (1, 2):
        with pytest.raises(type(error)):
            codes(error, attempt)
    assert codes(error, 3) == ["UNREACHABLE"]


@pytest.mark.parametrize(
    ("error", "code"), [(NoServer("nothing listens"), "UNREACHABLE"), (StoreDenied("no right"), "DENIED")]
)
def test_lasting_errors_are_blockers_at_once(error: StoreError, code: str) -> None:
    """A wrong address or a missing right does not get better by itself."""
    assert codes(error, 1) == [code]


def test_outside_of_an_activity_each_error_is_a_blocker() -> None:
    """The first error counts where nothing starts another attempt, as in a command."""
    findings = Findings()

    def check() -> None:
        raise TIMEOUT

    assert not findings.check("the brokers", check)
    assert [blocker.code for blocker in findings.blockers] == ["UNREACHABLE"]
