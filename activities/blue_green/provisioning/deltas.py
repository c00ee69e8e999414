"""A difference between both clusters, together with the change to green that removes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.names import TopicName
from models.blue_green.differences import LONGEST_VALUE, Difference, DifferenceKind
from models.broker_settings import deletes_consumed
from models.text import shown

Change = Callable[[FencedAdmin], None]
"""Calls to green that make it equal in one point; they can be repeated."""

NOT_SET = "not set"

# Policies of namespaces and of topics with which consumers miss messages that they would get without.
_BREAKING = frozenset(
    (
        "entryFilters",
        "message_ttl_in_seconds",
        "subscription_expiration_time_minutes",
        "subscription_types_enabled",
        "messageTTL",
        "subscriptionExpirationTime",
        "subscriptionTypesEnabled",
    )
)


class Delta(NamedTuple):
    """A difference, and the change that removes it.

    Attributes:
        difference: as it is reported.
        what: the kind of thing that the change creates or changes, for counting.
        change: removes it; None if no change can.
        topic: the topic that it belongs to; None where it belongs to the namespace or the tenant.
        implied: it follows from another one, such as a missing topic, and is not reported.
    """

    difference: Difference
    what: str = ""
    change: Change | None = None
    topic: TopicName | None = None
    implied: bool = False

    @property
    def wanted_always(self) -> bool:
        """Whether the change is made without being asked for: it only adds."""
        return self.difference.kind is DifferenceKind.MISSING


def missing(path: str, blue: str, what: str = "", change: Change | None = None) -> Delta:
    """Return the delta of a thing that only blue has."""
    difference = Difference(
        path=path, kind=DifferenceKind.MISSING, blue=shown(blue, LONGEST_VALUE), creatable=change is not None
    )
    return Delta(difference, what, change)


def differs(path: str, texts: tuple[str, str], what: str = "", change: Change | None = None) -> Delta:
    """Return the delta of a thing that differs; `texts` are blue's and green's."""
    blue, green = (shown(text, LONGEST_VALUE) for text in texts)
    creatable = change is not None
    difference = Difference(path=path, kind=DifferenceKind.DIFFERS, blue=blue, green=green, creatable=creatable)
    return Delta(difference, what, change)


def extra(path: str, green: str = "") -> Delta:
    """Return the delta of a thing that only green has."""
    return Delta(Difference(path=path, kind=DifferenceKind.EXTRA, green=shown(green, LONGEST_VALUE)))


def policy_of_green(path: str, name: str, value: Any, text: str) -> Delta:
    """Return the delta of a policy that only green has: harmless, unless consumers would miss messages because of it.

    Args:
        path: of the difference.
        name: of the policy.
        value: that green has.
        text: the same as it is reported.
    """
    # PRECHECK checks that of a namespace, with the settings of brokers.
    is_breaking = name in _BREAKING or (name == "inactiveTopicPolicies" and deletes_consumed(value, {}))
    # mutant: blue-green/policies-of-green-alone-pass
    return differs(path, (NOT_SET, text)) if value and is_breaking else extra(path, text)


def unsupported(path: str, blue: str, release: object, *, relied_on: bool) -> Delta:
    """Return the delta of a policy of blue that green's release does not have."""
    return Delta(
        Difference(
            path=path,
            kind=DifferenceKind.UNSUPPORTED,
            blue=shown(blue, LONGEST_VALUE),
            green=f"its release {release} does not have it",
            harmless=not relied_on,
        )
    )


def as_text(value: Any) -> str:
    """Return a value as people read it, without secrets."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON
        value = {name: "***" if is_secret(name) else content for name, content in fields.items()}
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def is_secret(name: str) -> bool:
    """Return whether a value of this name must not be shown: keys of stores to which ledgers are offloaded."""
    return any(word in name.lower() for word in ("credential", "secret"))
