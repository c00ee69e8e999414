"""Topics as brokers' metadata store has them, whether they are loaded or not."""

from __future__ import annotations

import time

from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName

_TRIES = 5
_PAUSE = 0.1


def stored(admin: PulsarAdminReader, topic: TopicName) -> InternalInfo | None:
    """A topic as the metadata store has it; None where it is gone.

    Raises:
        AdminError: it could not be found out.
    """
    tries = 0
    while True:
        try:
            return admin.topics.internal_info(topic)
        except AdminNotFound:
            return None
        except AdminServerError:
            # Brokers fail where the topic is gone, and where a cursor of it vanishes while they read: both are part of
            # every drain.
            tries += 1
            if str(topic) not in admin.topics.names(topic.namespace_path):
                return None
            if tries == _TRIES:
                raise
            time.sleep(_PAUSE)


def after_end(info: InternalInfo) -> str:
    """Return which ledgers a topic has after the position at which it was ended, in words; empty for none.

    A broker that changed the ledger of a topic while it was ended may have taken messages after that (#26680).
    Consumers never get these once the topic was loaded again.

    Args:
        info: of the topic.
    """
    end = info.terminated_position
    if end is None:
        return ""
    found: list[str] = []
    for ledger in info.ledgers:
        if ledger.ledger_id == end.ledger_id and ledger.entries > end.entry_id + 1:
            found.append(f"{ledger.entries - end.entry_id - 1} entries in ledger {ledger.ledger_id}")
        elif ledger.ledger_id > end.ledger_id:
            # How many entries a ledger has is stored when it is closed.
            found.append(f"{ledger.entries or 'perhaps'} entries in ledger {ledger.ledger_id}")
    return ", ".join(found)
