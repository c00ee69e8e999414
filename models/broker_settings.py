"""Effective settings of brokers, where several settings have the same meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from models.store_url import parse_broker_setting

METADATA_STORE: Final = ("metadataStoreUrl", "zookeeperServers")
"""Settings that name the metadata store, in the order in which brokers take them."""
CONFIGURATION_STORE: Final = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers")
"""Settings that name the configuration store, likewise; without any it is the metadata store."""

QUOTA_LIMITS: Final = {"destination_storage": "limitSize", "message_age": "limitTime"}
"""Kinds of backlog quotas, with the field of their limit, in bytes and in seconds."""
_EVICTS = "consumer_backlog_eviction"
_CAUGHT_UP = "delete_when_subscriptions_caught_up"


def metadata_store_of(settings: Mapping[str, str]) -> str:
    """Return the address of a broker's metadata store, as its configuration names it; empty if it does not.

    Args:
        settings: by their names in `broker.conf`; the older names count where the newer ones are empty.
    """
    return _first(settings, METADATA_STORE)[1]


def configuration_store_of(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return the setting that names a broker's configuration store, and its value; both empty without any.

    Args:
        settings: those of `metadata_store_of`.
    """
    return _first(settings, CONFIGURATION_STORE)


def configuration_store_apart(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return the setting that names a configuration store which is not the broker's metadata store, and its value.

    Both are empty where there is none. Only the broker's own names are compared: others may reach servers by others.

    Args:
        settings: those of `metadata_store_of`.
    """
    name, store = configuration_store_of(settings)
    # mutant: blue-green/configuration-store-apart
    return ("", "") if not store or is_same_store(metadata_store_of(settings), store) else (name, store)


def is_same_store(first: str, other: str) -> bool:
    """Return whether two settings of brokers name the same tree of the same servers."""
    try:
        stores = parse_broker_setting(first), parse_broker_setting(other)
    except ValueError:
        return first == other
    return stores[0].root == stores[1].root and stores[0].overlaps(stores[1])


def message_ttl(policies: Mapping[str, Any], settings: Mapping[str, str]) -> int:
    """Return after how many seconds brokers drop what was not consumed in a namespace; 0 for never.

    Args:
        policies: of the namespace, by their names in its record.
        settings: of a broker, which count where the namespace says nothing.
    """
    return _limit(policies.get("message_ttl_in_seconds"), settings.get("ttlDurationDefaultInSeconds"))


def subscription_expiration(policies: Mapping[str, Any], settings: Mapping[str, str]) -> int:
    """Return after how many minutes brokers delete subscriptions without consumers in a namespace; 0 for never.

    Args:
        policies: those of `message_ttl`.
        settings: likewise.
    """
    own = policies.get("subscription_expiration_time_minutes")
    return _limit(own, settings.get("subscriptionExpirationTimeMinutes"))


def backlog_quota(kind: str, policies: Mapping[str, Any], settings: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the backlog quota that holds in a namespace, as brokers write it.

    Args:
        kind: one of `QUOTA_LIMITS`.
        policies: those of `message_ttl`.
        settings: likewise.
    """
    quotas: Mapping[str, Mapping[str, Any]] = policies.get("backlog_quota_map") or {}
    return quotas.get(kind) or _default_quota(settings)


def eviction_limit(kind: str, quota: Mapping[str, Any]) -> int | None:
    """Return the backlog from which on brokers drop what was not consumed; None for never.

    Args:
        kind: one of `QUOTA_LIMITS`.
        quota: a backlog quota, as brokers write it.
    """
    if quota.get("policy") != _EVICTS:
        return None
    limit = int(quota.get(QUOTA_LIMITS[kind], -1))
    # Brokers take 0 seconds for no limit, and 0 bytes for one (5.0.1).
    return limit if limit > 0 or (limit == 0 and kind == "destination_storage") else None


def deletes_consumed(policy: Mapping[str, Any] | None, settings: Mapping[str, str]) -> bool:
    """Return whether brokers delete an unused topic with its subscriptions, once these have consumed it.

    Args:
        policy: the policy for inactive topics of the topic, or of its namespace; None if neither has one.
        settings: those of `message_ttl`.
    """
    if policy:
        deletes, mode = policy.get("deleteWhileInactive"), policy.get("inactiveTopicDeleteMode")
    else:
        deletes = settings.get("brokerDeleteInactiveTopicsEnabled") == "true"
        mode = settings.get("brokerDeleteInactiveTopicsMode")
    return bool(deletes) and mode == _CAUGHT_UP


def _default_quota(settings: Mapping[str, str]) -> dict[str, Any]:
    gigabytes = float(settings.get("backlogQuotaDefaultLimitGB") or -1)
    size = int(gigabytes * 2**30) if gigabytes > 0 else int(settings.get("backlogQuotaDefaultLimitBytes") or -1)
    return {
        "policy": settings.get("backlogQuotaDefaultRetentionPolicy"),
        "limitSize": size,
        "limitTime": int(settings.get("backlogQuotaDefaultLimitSecond") or -1),
    }


def _limit(own: int | None, default: str | None) -> int:
    return max(0, int(default or 0) if own is None else own)


def _first(settings: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    return next(((name, value) for name in names if (value := (settings.get(name) or "").strip())), ("", ""))
