"""Topics in the brokers' metadata store, loaded or not."""

from __future__ import annotations

import time

from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName

_TRIES = 5
_PAUSE = 0.1


def stored(admin: PulsarAdminReader, topic: TopicName) -> InternalInfo | None:
    """Return a topic from the metadata store; None if it is gone.

    Raises:
        AdminError: brokers do not report whether it exists.
    """
    tries = 0
    while True:
        try:
            return admin.topics.internal_info(topic)
        except AdminNotFound:
            return None
        except AdminServerError:
            # Brokers fail if the topic is gone, or one of its cursors vanishes during the read: both happen in every
            # drain.
            tries += 1
            if str(topic) not in admin.topics.names(topic.namespace_path):
                return None
            if tries == _TRIES:
                raise
            time.sleep(_PAUSE)


def after_end(info: InternalInfo) -> str:
    """Return the ledgers after the position at which a topic was terminated, in words; empty for none.

    A broker that rolled over the ledger during the termination may have accepted messages after it (#26680). Consumers
    never get these once the topic was loaded again.

    Args:
        info: of the topic.
    """
    end = info.terminated_position
    if end is None:
        return ""
    ledgers: list[str] = []
    for ledger in info.ledgers:
        if ledger.ledger_id == end.ledger_id and ledger.entries > end.entry_id + 1:
            ledgers.append(f"{ledger.entries - end.entry_id - 1} entries in ledger {ledger.ledger_id}")
        elif ledger.ledger_id > end.ledger_id:
            # The number of entries is stored when a ledger is closed.
            ledgers.append(f"{ledger.entries or 'perhaps'} entries in ledger {ledger.ledger_id}")
    return ", ".join(ledgers)
