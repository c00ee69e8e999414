"""One table of what differs between the releases of Pulsar that are supported.

A broker's version is read once and becomes a `Release`; code asks its properties and never compares versions. A
property names the first release of each line that has the behaviour; a line that it does not name does not have it.
Every row was compared with the classes of 5.0.1, 4.2.4 and 4.0.8; where the first release is another one, it is that
of the release notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

LINES: Final = ("4.0", "4.2", "5.0")
"""The lines that are supported, the oldest first."""

# 4.2.4, 5.0.1-SNAPSHOT, 5.0.0-M2, 4.0.8.1, 4.2.4-vendor-3
_VERSION = re.compile(r"v?(?P<line>\d+\.\d+)\.(?P<patch>\d+)(?P<suffix>.*)", re.DOTALL)
# Builds before the release that they name: they may lack any of its repairs.
_EARLY = re.compile(r"[-.](?:M\d+|snapshot|rc|candidate|alpha|beta)", re.IGNORECASE)


class PolicyField(NamedTuple):
    """A policy that not every supported release has.

    Attributes:
        firsts: the first releases that have it, one of each line.
        unset: values that mean the same as none.
        relied_on: whether data or clients depend on it where it is set, so that it must not be lost.
    """

    firsts: tuple[str, ...]
    unset: tuple[object, ...] = ()
    relied_on: bool = False


# By their names in JSON. All other policies of the classes Policies, LocalPolicies, TopicPolicies and
# SubscriptionPolicies, and all fields of these, are the same in every supported release.
_NAMESPACE_POLICIES: Final = {
    "allowed_topic_property_keys_for_metrics": PolicyField(("5.0.0", "4.2.0"), unset=([],)),
    # Brokers without it let a replicator register schemas, as `true` does.
    "is_allow_auto_update_schema_with_replicator": PolicyField(("5.0.0",), unset=(True,), relied_on=True),
    # Scalable topics are in no release without it.
    "scalableTopicAutoScalePolicy": PolicyField(("5.0.0",)),
}
# By the last part of their path. Without this one the namespace's would hold, and may end subscriptions earlier.
_TOPIC_POLICIES: Final = {"subscriptionExpirationTime": PolicyField(("5.0.0", "4.2.0"), relied_on=True)}


class UnsupportedRelease(ValueError):
    """This release is not supported.

    Attributes:
        cause: which it is, and which are supported.
        cure: what to do.
    """

    def __init__(self, cause: str, cure: str) -> None:
        super().__init__(f"{cause}; {cure}")
        self.cause = cause
        self.cure = cure


@dataclass(frozen=True, order=True)
class Release:
    """What one release of Pulsar does; made by `parse_release`. The older of two is the smaller.

    Attributes:
        line: of the release, for example (4, 2).
        patch: its number in the line; a build before a release counts as the release before.
        text: as the broker reports it.
    """

    line: tuple[int, int]
    patch: int
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def has_scalable_topics(self) -> bool:
        """Return whether brokers control scalable topics themselves (PIP-468, PIP-475), if `scalableTopicsEnabled`."""
        return self.is_at_least("5.0.0")

    @property
    def routes_keys_by_high_bits(self) -> bool:
        """Return whether the high 16 bits of a key's hash choose its segment (#26114)."""
        return self.is_at_least("5.0.0")

    @property
    def has_entry_buckets(self) -> bool:
        """Return whether segments have entry buckets, and brokers change them by a rebucket (PIP-486)."""
        return self.is_at_least("5.0.0")

    @property
    def honours_create_if_missing(self) -> bool:
        """Return whether a lookup of a scalable topic can ask not to create it (#26048)."""
        return self.is_at_least("5.0.0")

    @property
    def reports_byte_rates(self) -> bool:
        """Return whether load records of segments say `byteRateIn` and `byteRateOut`."""
        return self.is_at_least("5.0.0")

    @property
    def has_safe_scalable_statistics(self) -> bool:
        """Return whether only the leader answers for the statistics of a scalable topic (#26639, #26650)."""
        return self.is_at_least("5.0.0")

    @property
    def names_clients_by_segment(self) -> bool:
        """Return whether V5 clients attach to segments as `name-seg-N`."""
        return self.is_at_least("5.0.0")

    @property
    def has_permission_to_migrate(self) -> bool:
        """Return whether authorization knows the operation MIGRATE_TO_SCALABLE."""
        return self.is_at_least("5.0.0")

    @property
    def decodes_scalable_names(self) -> bool:
        """Return whether the admin interface decodes names of scalable topics once, and only once (#26668, #26711)."""
        return self.is_at_least("5.0.0")

    @property
    def terminates_safely(self) -> bool:
        """Return whether a topic can be terminated while producers write (#26678, #26680)."""
        return self.is_at_least("5.0.0", "4.2.5", "4.0.14")

    @property
    def has_live_metadata_migration(self) -> bool:
        """Return whether brokers and bookies take part in a migration of their metadata store (PIP-454)."""
        return self.is_at_least("5.0.0", "4.2.0")

    @property
    def repaired_metadata_migration(self) -> bool:
        """Return whether it has the repairs of a second attempt and of brokers that start midway (#25989, #25993)."""
        return self.is_at_least("5.0.0")

    @property
    def takes_store_parameters(self) -> bool:
        """Return whether a `metadata-store:` URI may carry a query (#26067, #26150)."""
        return self.is_at_least("5.0.0", "4.2.4")

    @property
    def has_topic_policies_in_store(self) -> bool:
        """Return whether topic policies can be records in the metadata store (PIP-469)."""
        return self.is_at_least("5.0.0", "4.2.3", "4.0.12")

    @property
    def closes_inactive_topics(self) -> bool:
        """Return whether there is the setting `brokerCloseInactiveTopicsEnabled` (PIP-470)."""
        return self.is_at_least("5.0.0")

    @property
    def unblocks_producers_at_once(self) -> bool:
        """Return whether producers go on as soon as a publish limit is taken away (#25502).

        Without it brokers read a connection again only when the limit would have allowed it.
        """
        return self.is_at_least("5.0.0", "4.2.1", "4.0.10")

    @property
    def sends_all_consumers_on(self) -> bool:
        """Return whether consumers of non-persistent topics are sent to another cluster as well (#26075)."""
        return self.is_at_least("5.0.0", "4.2.3", "4.0.12")

    @property
    def checks_migration_urls(self) -> bool:
        """Return whether brokers refuse a cluster migration to an empty URL (#26473)."""
        return self.is_at_least("5.0.0", "4.2.5", "4.0.14")

    @property
    def has_ledger_properties(self) -> bool:
        """Return whether the ledgers of a topic have properties; to other brokers they are unknown fields."""
        return self.is_at_least("5.0.0", "4.2.0")

    @property
    def keeps_ledger_properties_on_open(self) -> bool:
        """Return whether the last ledger's properties survive that a topic is loaded (#26509)."""
        return self.is_at_least("5.0.0", "4.2.5", "4.0.14")

    @property
    def keeps_ledger_properties_on_close(self) -> bool:
        """Return whether a ledger's properties survive that it is closed (#26227)."""
        return self.is_at_least("5.0.0", "4.2.4", "4.0.14")

    @property
    def keeps_cursor_properties(self) -> bool:
        """Return whether a cursor's properties survive that its ledger cannot be read (#26512)."""
        return self.is_at_least("5.0.0", "4.2.5", "4.0.14")

    @property
    def refuses_outer_white_space(self) -> bool:
        """Return whether names that begin or end with white space cannot be created (#26281)."""
        return self.is_at_least("5.0.0")

    @property
    def has_v1_namespaces(self) -> bool:
        """Return whether there are namespaces `tenant/cluster/namespace` (removed by PIP-457)."""
        return not self.is_at_least("5.0.0", "4.2.0")

    @property
    def default_bundles(self) -> int:
        """Return into how many bundles a new namespace is divided, unless brokers are configured otherwise (#26610)."""
        return 32 if self.is_at_least("5.0.0") else 4

    @property
    def default_load_manager(self) -> str:
        """Return the class name of the load manager, unless brokers are configured otherwise."""
        return "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"

    @property
    def default_shedder(self) -> str:
        """Return the class name of the load shedding strategy, unless brokers are configured otherwise (#26609)."""
        shedder = "AvgShedder" if self.is_at_least("5.0.0") else "ThresholdShedder"
        return f"org.apache.pulsar.broker.loadbalance.impl.{shedder}"

    @property
    def default_compression(self) -> str:
        """Return how brokers compress managed ledgers and cursors, unless they are configured otherwise."""
        return "LZ4" if self.is_at_least("5.0.0") else "NONE"

    @property
    def minimum_java(self) -> int:
        """Return the oldest Java that servers run on."""
        return 21 if self.is_at_least("5.0.0") else 17

    def lacked_namespace_policy(self, name: str) -> PolicyField | None:
        """Return the row of a namespace policy that this release does not have; None if it has it.

        Args:
            name: in the JSON of the policies, for example `replication_clusters`.
        """
        return self._lacked(_NAMESPACE_POLICIES.get(name))

    def lacked_topic_policy(self, name: str) -> PolicyField | None:
        """Return the row of a topic policy that this release does not have; None if it has it.

        Args:
            name: the last part of its path in the admin interface, for example `retention`.
        """
        return self._lacked(_TOPIC_POLICIES.get(name))

    def _lacked(self, policy: PolicyField | None) -> PolicyField | None:
        return None if policy is None or self.is_at_least(*policy.firsts) else policy

    def is_at_least(self, *firsts: str) -> bool:
        """Return whether this is one of some releases, or a later one of the same line; for this table and defects.

        Args:
            firsts: `major.minor.patch`, one of each line.
        """
        split = (tuple(map(int, first.split("."))) for first in firsts)
        return any((major, minor) == self.line and self.patch >= patch for major, minor, patch in split)


def parse_release(version: str) -> Release:
    """Return the release that a broker reports.

    Args:
        version: as brokers report it: `5.0.1`, `4.2.4-SNAPSHOT`, or with a vendor's suffix, as `4.0.8.2`.

    Raises:
        UnsupportedRelease: it is not a release of a supported line.
    """
    text = version.strip()
    found = _VERSION.fullmatch(text)
    supported = f"supported lines: {', '.join(LINES)}"
    if found is None:
        raise UnsupportedRelease(f"unknown version {text!r} of Pulsar ({supported})", "check the address")
    line, patch = found["line"], int(found["patch"]) - bool(_EARLY.match(found["suffix"]))
    if line not in LINES:
        raise UnsupportedRelease(
            f"Pulsar {text} is not supported ({supported})",
            f"upgrade all brokers to a supported line, or use a pulsar-migrate that supports line {line}",
        )
    if patch < 0:  # The milestones 5.0.0-M1 and 5.0.0-M2 among them.
        raise UnsupportedRelease(
            f"Pulsar {text} was built before the first release of line {line}",
            f"upgrade all brokers to the newest release of line {line}",
        )
    major, minor = map(int, line.split("."))
    return Release((major, minor), patch, text)
