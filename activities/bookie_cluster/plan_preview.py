"""What a bookie cluster switch will do, in sentences, and about how long it will take."""

from __future__ import annotations

from typing import NamedTuple

from clients.bookkeeper.idgen import high_path
from models.bookie_cluster.input import BookieClusterPlan, BrokerControl, Routing
from models.bookie_cluster.results import IdCheck, LedgerSurvey
from models.lifecycle.input import SourceCleanup

# Seen with two bookies on one machine with two cores, which are the bound there: what a copy and its compare take.
_BYTES_PER_SECOND, _LEDGERS_PER_SECOND = 20e6, 700.0
# Two jobs of Spark, the claim, and the steps of a workflow.
_PAUSE_SECONDS, _RECOVERY_SECONDS = 2.0, 0.1
# Both clusters are looked at twice.
_LOOKS = 2

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


def estimate(plan: BookieClusterPlan, survey: LedgerSurvey, *, left: int, left_bytes: int, look: float) -> Estimate:
    """Estimate both times.

    Args:
        plan: says how fast it may go.
        survey: what moves.
        left: closed ledgers that the target lacks.
        left_bytes: bytes of their entries.
        look: seconds that one look at both clusters took just now.
    """
    rate = min(_BYTES_PER_SECOND, plan.throttle * 1e6) if plan.throttle else _BYTES_PER_SECOND
    copy = left_bytes / rate + left / _LEDGERS_PER_SECOND
    pause = _PAUSE_SECONDS + _LOOKS * look + survey.unsealed * _RECOVERY_SECONDS
    if plan.full_verify:
        pause += survey.entry_bytes / _BYTES_PER_SECOND + survey.ledgers / _LEDGERS_PER_SECOND
    return Estimate(
        round(copy, 1),
        round(pause, 1) if plan.routing is Routing.RESTART else 0.0,
        f"{rate / 1e6:g} MB/s and {_LEDGERS_PER_SECOND:,.0f} ledgers a second, as two bookies on one machine take them "
        f"(the status shows the real rate); both clusters' metadata were read in {look:.1f} s just now",
    )


def outline(plan: BookieClusterPlan, survey: LedgerSurvey, ids: IdCheck | None) -> tuple[str, ...]:
    """The phases in sentences, in their order.

    Args:
        plan: the switch.
        survey: what moves.
        ids: how the target's generator stands; None if it is not known.
    """
    middle = _restart(plan, survey) if plan.routing is Routing.RESTART else _attribution(plan, survey)
    return (
        (
            f"REGISTER: {plan.source.name} is ACTIVE and {plan.target.name} STANDBY in {plan.registry_path}, unless "
            "they are registered already"
        ),
        *_ids(plan, ids),
        *middle,
        f"ROLLBACK_WINDOW: for {plan.rollback_window} `rollback` leads back to {plan.source.name}",
        _cleanup(plan),
    )


def _ids(plan: BookieClusterPlan, ids: IdCheck | None) -> tuple[str, ...]:
    if ids is None or ids.safe:
        return ()
    if plan.advance_ids:
        return (
            (
                f"BUILD: create {plan.target.root.root}{high_path(ids.cure)}, so that ids of {plan.target.name} begin "
                f"at {ids.cure << 32:,}, above {ids.highest:,}; there is no way back down"
            ),
        )
    if plan.skip_idgen_precheck:
        return (
            (
                f"LAB ONLY: ids of {plan.target.name} begin at {ids.next_id:,}, not above {ids.highest:,}; messages "
                "can be lost"
            ),
        )
    return ()


def _restart(plan: BookieClusterPlan, survey: LedgerSurvey) -> tuple[str, ...]:
    source, target = plan.source.name, plan.target.name
    again = ", compare every entry once more" if plan.full_verify else ""
    return (
        (
            f"BUILD: while brokers serve, copy {survey.ledgers - survey.unsealed:,} closed ledgers with "
            f"{survey.entry_bytes / 1e6:,.1f} MB of entries to {target} under their ids, and compare each in full"
        ),
        (
            f"SWITCH: {_STOPPERS[plan.broker_control]}; when none is registered, recover the open ledgers "
            f"({survey.unsealed:,} now), copy them and the rest{again}, compare all metadata of both clusters, and see "
            f"that each of {survey.references:,} positions has its ledger in {target}; after {plan.pause_deadline} "
            f"without a commit brokers start on {source} again"
        ),
        f"SWITCH: commit by setting switch-target to {target}",
        (
            f"PROMOTE: brokers start with bookkeeperMetadataServiceUri={plan.target.metadataServiceUri}; each must "
            "prove that it writes there"
        ),
    )


def _attribution(plan: BookieClusterPlan, survey: LedgerSurvey) -> tuple[str, ...]:
    target = plan.target.name
    return (
        (
            f"BUILD: copy {survey.ledgers - survey.unsealed:,} closed schema and cursor ledgers with "
            f"{survey.entry_bytes / 1e6:,.1f} MB of entries to {target} under their ids, and compare each in full"
        ),
        f"SWITCH: set switch-target to {target}; brokers create new ledgers there from now on",
        (
            f"PROMOTE: attribute what was copied to {target}, schemas by compare-and-set and cursors through their "
            f"owners; open cursor ledgers ({survey.unsealed:,} now) and topics' data stay in {plan.source.name}"
        ),
    )


def _cleanup(plan: BookieClusterPlan) -> str:
    source, target = plan.source.name, plan.target.name
    when = "at the window's end" if plan.cleanup_at_window_end else "by `cleanup`"
    if plan.cleanup is SourceCleanup.LEAVE:
        return f"CLEANUP: {target} becomes ACTIVE and {source} DEPRECATED; the ledgers of {source} stay as they are"
    limit = f"at most {plan.max_deletions:,} of " if plan.max_deletions is not None else ""
    return (
        f"CLEANUP: {target} becomes ACTIVE and {source} DEPRECATED; {when} {limit}the ledgers of {source} are deleted "
        "that were verified and that nothing needs"
    )
