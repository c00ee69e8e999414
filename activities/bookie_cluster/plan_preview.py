"""What a bookie cluster switch will do, in sentences, and about how long it will take."""

from __future__ import annotations

from typing import NamedTuple

from clients.bookkeeper.idgen import high_path
from models.bookie_cluster.input import BookieClusterInput, BrokerControl, Routing
from models.bookie_cluster.results import IdCheck, LedgerSurvey
from models.lifecycle.input import SourceCleanup

# Seen with two bookies on one machine with two cores, which are the bound there: what a copy and its compare take.
_BYTES_PER_SECOND, _LEDGERS_PER_SECOND = 20e6, 700.0
# Two jobs of Spark, the claim, and the steps of a workflow.
_PAUSE_SECONDS, _RECOVERY_SECONDS = 2.0, 0.1
# Both clusters are looked at twice.
_INSPECTIONS = 2

_STOPPERS = {
    BrokerControl.MANUAL: "you stop all brokers when the status asks for it",
    BrokerControl.COMMAND: "the command of the settings stops all brokers",
    BrokerControl.WEBHOOK: "the webhook of the settings has all brokers stopped",
}


class Estimate(NamedTuple):
    """How long the copy, and the pause of the brokers beyond their own stop and start, will take about."""

    copy_seconds: float
    pause_seconds: float
    basis: str


def estimate(
    input: BookieClusterInput, survey: LedgerSurvey, *, left: int, left_bytes: int, inspection_seconds: float
) -> Estimate:
    """Estimate both times.

    Args:
        input: says how fast it may go.
        survey: what moves.
        left: closed ledgers that the target lacks.
        left_bytes: bytes of their entries.
        inspection_seconds: time that reading both clusters' metadata took just now.
    """
    rate = min(_BYTES_PER_SECOND, input.throttle * 1e6) if input.throttle else _BYTES_PER_SECOND
    copy = left_bytes / rate + left / _LEDGERS_PER_SECOND
    pause = _PAUSE_SECONDS + _INSPECTIONS * inspection_seconds + survey.unsealed * _RECOVERY_SECONDS
    if input.full_verify:
        pause += survey.entry_bytes / _BYTES_PER_SECOND + survey.ledgers / _LEDGERS_PER_SECOND
    return Estimate(
        round(copy, 1),
        round(pause, 1) if input.routing is Routing.RESTART else 0.0,
        f"{rate / 1e6:g} MB/s and {_LEDGERS_PER_SECOND:,.0f} ledgers a second, as two bookies on one machine take them "
        f"(the status shows the real rate); both clusters' metadata were read in {inspection_seconds:.1f} s just now",
    )


def plan_preview(input: BookieClusterInput, survey: LedgerSurvey, ids: IdCheck | None) -> tuple[str, ...]:
    """The phases in sentences, in their order.

    Args:
        input: the switch.
        survey: what moves.
        ids: how the target's generator stands; None if it is not known.
    """
    middle = _restart(input, survey) if input.routing is Routing.RESTART else _attribution(input, survey)
    return (
        (
            f"REGISTER: {input.source.name} is ACTIVE and {input.target.name} STANDBY in {input.registry_path}, unless "
            "they are registered already"
        ),
        *_ids(input, ids),
        *middle,
        f"ROLLBACK_WINDOW: for {input.rollback_window} `rollback` leads back to {input.source.name}",
        _cleanup(input),
    )


def _ids(input: BookieClusterInput, ids: IdCheck | None) -> tuple[str, ...]:
    if ids is None or ids.safe:
        return ()
    if input.advance_ids:
        return (
            (
                f"BUILD: create {input.target.root.root}{high_path(ids.cure)}, so that ids of {input.target.name} "
                f"begin at {ids.cure << 32:,}, above {ids.highest:,}; there is no way back down"
            ),
        )
    if input.skip_idgen_precheck:
        return (
            (
                f"LAB ONLY: ids of {input.target.name} begin at {ids.next_id:,}, not above {ids.highest:,}; messages "
                "can be lost"
            ),
        )
    return ()


def _restart(input: BookieClusterInput, survey: LedgerSurvey) -> tuple[str, ...]:
    source, target = input.source.name, input.target.name
    again = ", compare every entry once more" if input.full_verify else ""
    return (
        (
            f"BUILD: while brokers serve, copy {survey.ledgers - survey.unsealed:,} closed ledgers with "
            f"{survey.entry_bytes / 1e6:,.1f} MB of entries to {target} under their ids, and compare each in full"
        ),
        (
            f"SWITCH: {_STOPPERS[input.broker_control]}; when none is registered, recover the open ledgers "
            f"({survey.unsealed:,} now), copy them and the rest{again}, compare all metadata of both clusters, and see "
            f"that each of {survey.references:,} references has its ledger in {target}; after {input.pause_deadline} "
            f"without a commit brokers start on {source} again"
        ),
        f"SWITCH: commit by setting switch-target to {target}",
        (
            f"PROMOTE: brokers start with bookkeeperMetadataServiceUri={input.target.metadataServiceUri}; each must "
            "prove that it writes there"
        ),
    )


def _attribution(input: BookieClusterInput, survey: LedgerSurvey) -> tuple[str, ...]:
    target = input.target.name
    return (
        (
            f"BUILD: copy {survey.ledgers - survey.unsealed:,} closed schema and cursor ledgers with "
            f"{survey.entry_bytes / 1e6:,.1f} MB of entries to {target} under their ids, and compare each in full"
        ),
        f"SWITCH: set switch-target to {target}; brokers create new ledgers there from now on",
        (
            f"PROMOTE: attribute what was copied to {target}, schemas by compare-and-set and cursors through their "
            f"owners; open cursor ledgers ({survey.unsealed:,} now) and topics' data stay in {input.source.name}"
        ),
    )


def _cleanup(input: BookieClusterInput) -> str:
    source, target = input.source.name, input.target.name
    when = "at the window's end" if input.cleanup_at_window_end else "by `cleanup`"
    if input.cleanup is SourceCleanup.LEAVE:
        return f"CLEANUP: {target} becomes ACTIVE and {source} DEPRECATED; the ledgers of {source} stay as they are"
    limit = f"at most {input.max_deletions:,} of " if input.max_deletions is not None else ""
    return (
        f"CLEANUP: {target} becomes ACTIVE and {source} DEPRECATED; {when} {limit}the ledgers of {source} are deleted "
        "that were verified and that nothing needs"
    )
