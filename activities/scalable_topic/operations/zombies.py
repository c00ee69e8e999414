"""The verb `find_zombies`: brokers that are said to lead a topic, and do not know it (not seen with 5.0.1).

A broker that was asked for the statistics of a topic takes part in its election. If it wins later, it goes on as one
that has lost: nothing can be split or merged, and no stream consumer gets in.
"""

from __future__ import annotations

from activities.scalable_topic.operations.context import Look
from activities.scalable_topic.operations.leader import NOT_LEADER, zombie
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.scalable_records import controller_of
from models.scalable_topic.operation_results import TopicOutcome, Verdict

_NO_SEGMENT = 2**62
"""No topic has so many segments: whoever leads looks for it, finds nothing and refuses; whoever does not says so."""

_NO_SUCH = "Segment not found"
_LOOKS = 3
_PAUSE = 4.0


def find_zombie(look: Look) -> TopicOutcome:
    """Whether the broker that is said to lead the topic does.

    Raises:
        AdminError: it does not answer.
        StoreConflict: the record is no good.
    """
    look.layout()
    leader = ""
    for number in range(_LOOKS):
        leader = controller_of(look.store, look.name)
        if leader is None:
            # A question would make whoever gets it the leader.
            return look.outcome(Verdict.UNCHANGED, "no broker leads it now")
        if look.task.input.dry_run:
            return look.outcome(Verdict.UNCHANGED, f"{leader} would be asked whether it leads it")
        if _leads(look):
            return look.outcome(Verdict.UNCHANGED, f"{leader} leads it")
        if number < _LOOKS - 1:
            # One that has just been elected does not know it yet either.
            look.task.context.pause(_PAUSE)
    return look.outcome(Verdict.FOUND, zombie(leader))


def _leads(look: Look) -> bool:
    try:
        # Whichever broker is asked sends the request to the one that is said to lead.
        look.task.admin.scalable_topics.split(look.name, _NO_SEGMENT)
    except AdminServerError as error:
        if NOT_LEADER in error.reason:
            return False
        if _NO_SUCH not in error.reason:
            raise
    return True
