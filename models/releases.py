"""One table of what differs between the releases of Pulsar that are supported.

A broker's version is read once and becomes a `Release`; code asks it by a row of this table, and never compares
versions. What a release does wrong, and a later one repairs, is in `defects.toml` instead. `docs/releases.md` is
generated from both. Every row was compared with the classes of 5.0.1, 4.2.4 and 4.0.8; where the first release is
another one, it is that of the release notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

LINES: Final = ("4.0", "4.2", "5.0")
"""The lines that are supported, the oldest first."""
TESTED: Final = ("4.0.8", "4.2.4", "5.0.1")
"""The releases of Pulsar that all tests ran with; others need `allow_untested_versions`."""
TESTED_ZOOKEEPER: Final = "3.9"
"""The line of ZooKeeper that all tests ran with."""
TESTED_CLIENTS: Final = {"Java": LINES, "CPP": ("4.2",)}
"""The lines of client libraries that followed to another cluster in tests; Python 3.13 reports C++ 4.2."""
PAGE: Final = "docs/releases.md"
"""The page that is generated from this table."""

# 4.2.4, 5.0.1-SNAPSHOT, 5.0.0-M2, 4.0.8.1, 4.2.4-vendor-3
_VERSION = re.compile(r"v?(?P<line>[0-9]+\.[0-9]+)\.(?P<patch>[0-9]+)(?P<suffix>.*)", re.DOTALL)
# Builds before the release that they name: they may lack any of its repairs.
_EARLY = re.compile(r"[-.](?:M[0-9]|milestone|snapshot|nightly|dev|preview|rc|candidate|alpha|beta)", re.IGNORECASE)

_SCALABLE: Final = ("scalable-topic", "scalable-namespace", "scalable-operation")


class Behaviour(Enum):
    """Behaviour of brokers that differs between releases.

    Attributes:
        says: what they do, in a sentence.
        firsts: the first releases that do it, one of each line; a line that is not named does not. Empty for what no
            supported release does yet.
        reference: issues and pull requests of apache/pulsar, or proposals.
        migrations: kinds in which it matters that releases differ.
    """

    def __init__(self, says: str, firsts: tuple[str, ...], reference: str, migrations: tuple[str, ...]) -> None:
        self.says = says
        self.firsts = firsts
        self.reference = reference
        self.migrations = migrations

    SCALABLE_TOPICS = (
        "Brokers control scalable topics themselves, if `scalableTopicsEnabled` is true.",
        ("5.0.0",),
        "PIP-468, PIP-475",
        ("blue-green", *_SCALABLE),
    )
    KEY_ROUTING = (
        "The high 16 bits of a key's hash choose its segment; with only legacy segments, the hash modulo their number.",
        ("5.0.0",),
        "#26114",
        _SCALABLE,
    )
    ENTRY_BUCKETS = (
        "Segments have entry buckets, which the low 16 bits choose; a rebucket changes their number.",
        ("5.0.0",),
        "PIP-486",
        _SCALABLE,
    )
    CREATE_IF_MISSING = (
        "The lookup of a scalable topic creates it, unless `create_if_missing` is false.",
        ("5.0.0",),
        "#26048",
        _SCALABLE,
    )
    SEGMENT_NAMES = ("V5 clients attach to segments as `name-seg-N`.", ("5.0.0",), "PIP-475", _SCALABLE)
    LOAD_RECORDS = (
        "Load records of segments have `msgRateIn`, `msgRateOut`, `byteRateIn` and `byteRateOut`.",
        ("5.0.0",),
        "PIP-483",
        _SCALABLE,
    )
    SCALABLE_STATISTICS = (
        "Statistics of a scalable topic are answered by its leader alone; there are statistics of each segment.",
        ("5.0.0",),
        "#26639, #26650",
        _SCALABLE,
    )
    RIGHT_TO_MIGRATE = (
        "Authorization has the operation `MIGRATE_TO_SCALABLE`.",
        ("5.0.0",),
        "PIP-475",
        _SCALABLE,
    )
    ENCODED_NAMES = (
        "Only requests to create or migrate a scalable topic, and those for its permissions, decode its name.",
        ("5.0.0",),
        "#26668, #26711",
        _SCALABLE,
    )
    LIVE_MIGRATION = (
        "Brokers and bookies take part in a live migration of their metadata store.",
        ("5.0.0", "4.2.0"),
        "PIP-454",
        ("metadata-store",),
    )
    STORE_PARAMETERS = (
        "A `metadata-store:` address may have a query, which configures the client of the store.",
        ("5.0.0", "4.2.4"),
        "#26067, #26150",
        ("metadata-store", "bookie-cluster"),
    )
    SESSION_CANARY = (
        "Each client of an Oxia store holds an ephemeral record `.pulsar-oxia-session-canary-…`.",
        (),
        "master",
        ("metadata-store",),
    )
    POLICIES_IN_STORE = (
        "Topic policies can be records in the metadata store, if `topicPoliciesServiceClassName` says so.",
        ("5.0.0", "4.2.3", "4.0.12"),
        "PIP-469",
        ("blue-green", "metadata-store"),
    )
    CLOSES_INACTIVE_TOPICS = (
        "Brokers close inactive topics, if `brokerCloseInactiveTopicsEnabled` is true; the flip holds that off.",
        ("5.0.0",),
        "PIP-470",
        ("blue-green",),
    )
    REDIRECTS_ALL_CONSUMERS = (
        "Consumers of non-persistent topics are redirected to the other cluster as well.",
        ("5.0.0", "4.2.3", "4.0.12"),
        "#26075",
        ("blue-green",),
    )
    REFUSES_OUTER_WHITE_SPACE = (
        "A topic cannot be created if its name ends with white space.",
        ("5.0.0",),
        "#26281",
        ("blue-green",),
    )
    REFUSES_V1_NAMESPACES = (
        "Names of Pulsar 1, `tenant/cluster/namespace`, are invalid.",
        ("5.0.0", "4.2.0"),
        "PIP-457",
        ("blue-green",),
    )
    LEDGER_PROPERTIES = (
        "Ledgers of a topic have properties; other brokers take them for unknown fields.",
        ("5.0.0", "4.2.0"),
        "PIP-404",
        ("bookie-cluster",),
    )
    BATCH_READS = (
        "Brokers read entries from bookies in batches, unless `managedLedgerBatchReadEnabled` is false.",
        ("5.0.0",),
        "#25280",
        ("bookie-cluster",),
    )


class Default(NamedTuple):
    """The value of a setting of brokers where `broker.conf` does not name it.

    Attributes:
        values: by release line, as in `LINES`; None for a line that does not have the setting.
        migrations: kinds in which it matters that releases differ.
    """

    values: tuple[str | None, str | None, str | None]
    migrations: tuple[str, ...] = ("blue-green",)


_BALANCING: Final = "org.apache.pulsar.broker.loadbalance.impl"
_THRESHOLD_SHEDDER: Final = f"{_BALANCING}.ThresholdShedder"
_LEAST_RATE: Final = f"{_BALANCING}.LeastLongTermMessageRate"
_AVG_SHEDDER: Final = f"{_BALANCING}.AvgShedder"
_LOAD_MANAGER: Final = f"{_BALANCING}.ModularLoadManagerImpl"

DEFAULTS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": Default(("false", "true", "true")),
    "authenticateOriginalAuthData": Default(("false", "false", "true")),
    "defaultNumberOfNamespaceBundles": Default(("4", "4", "32")),
    "enableShadowTopics": Default((None, None, "false")),
    "loadBalancerLoadPlacementStrategy": Default((_LEAST_RATE, _LEAST_RATE, _AVG_SHEDDER)),
    "loadBalancerLoadSheddingStrategy": Default((_THRESHOLD_SHEDDER, _THRESHOLD_SHEDDER, _AVG_SHEDDER)),
    "loadManagerClassName": Default((_LOAD_MANAGER, _LOAD_MANAGER, _LOAD_MANAGER)),
    "managedCursorInfoCompressionType": Default(("NONE", "NONE", "LZ4"), ()),
    "managedLedgerInfoCompressionType": Default(("NONE", "NONE", "LZ4"), ()),
    "tlsHostnameVerificationEnabled": Default(("false", "false", "true")),
}
"""By the names of settings in `broker.conf`."""


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


# All other policies of the classes Policies, LocalPolicies, TopicPolicies and SubscriptionPolicies, and all fields of
# these, are the same in every supported release.
NAMESPACE_POLICIES: Final = {
    "allowed_topic_property_keys_for_metrics": PolicyField(("5.0.0", "4.2.0"), unset=([],)),
    # Brokers without it let a replicator register schemas, as `true` does.
    "is_allow_auto_update_schema_with_replicator": PolicyField(("5.0.0",), unset=(True,), relied_on=True),
    # Scalable topics are in no release without it.
    "scalableTopicAutoScalePolicy": PolicyField(("5.0.0",)),
}
"""By their names in the JSON of the policies."""
# Without this one the namespace's would hold, and may end subscriptions earlier.
TOPIC_POLICIES: Final = {"subscriptionExpirationTime": PolicyField(("5.0.0", "4.2.0"), relied_on=True)}
"""By the last part of their paths in the admin interface."""


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
    """One release of Pulsar and its behaviour; made by `parse_release`. The older of two is the smaller.

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

    def has(self, behaviour: Behaviour) -> bool:
        """Return whether brokers of this release do that."""
        return self.is_at_least(*behaviour.firsts)

    def default(self, setting: str) -> str | None:
        """Return the default of a setting whose default is in the table; None if this release does not have it.

        Args:
            setting: its name in `broker.conf`, one of `DEFAULTS`.
        """
        return DEFAULTS[setting].values[LINES.index(".".join(map(str, self.line)))]

    @property
    def tested(self) -> bool:
        """Return whether all tests ran with this release; a vendor's build of it is another one."""
        return self.text.removeprefix("v") in TESTED

    @property
    def minimum_java(self) -> int:
        """Return the oldest Java that servers run on."""
        return 21 if self.is_at_least("5.0.0") else 17

    def lacked_namespace_policy(self, name: str) -> PolicyField | None:
        """Return the row of a namespace policy that this release does not have; None if it has it.

        Args:
            name: in the JSON of the policies, for example `replication_clusters`.
        """
        return self._lacked(NAMESPACE_POLICIES.get(name))

    def lacked_topic_policy(self, name: str) -> PolicyField | None:
        """Return the row of a topic policy that this release does not have; None if it has it.

        Args:
            name: the last part of its path in the admin interface, for example `retention`.
        """
        return self._lacked(TOPIC_POLICIES.get(name))

    def _lacked(self, policy: PolicyField | None) -> PolicyField | None:
        return None if policy is None or self.is_at_least(*policy.firsts) else policy

    def is_at_least(self, *firsts: str) -> bool:
        """Return whether this is one of some releases, or a later one of the same line; for this table and defects.

        Args:
            firsts: `major.minor.patch`, one of each line.
        """
        split = (tuple(map(int, first.split("."))) for first in firsts)
        return any((major, minor) == self.line and self.patch >= patch for major, minor, patch in split)


def behaviour_differences(first: Release, second: Release, migration: str) -> list[str]:
    """Return what the brokers of one release do and those of another do not, each in a sentence.

    Args:
        first: a release.
        second: another one.
        migration: the kind in which it matters, or `kind/mode`.
    """
    kind = migration.partition("/")[0]
    return [
        f"only {first if first.has(behaviour) else second}: {behaviour.says} ({behaviour.reference})"
        for behaviour in Behaviour
        if kind in behaviour.migrations and first.has(behaviour) != second.has(behaviour)
    ]


def default_differences(first: Release, second: Release, migration: str) -> list[str]:
    """Return the settings of brokers whose defaults differ between two releases, each with both values.

    Args:
        first: a release.
        second: another one.
        migration: the kind in which it matters, or `kind/mode`.
    """
    kind = migration.partition("/")[0]
    return [
        f"default of {setting}: {values[0]} in {first}, {values[1]} in {second}"
        for setting, default in DEFAULTS.items()
        if kind in default.migrations
        if len(set(values := [release.default(setting) or "not there" for release in (first, second)])) > 1
    ]


def parse_release(version: str) -> Release:
    """Return the release that a broker reports.

    Args:
        version: as brokers report it: `5.0.1`, `4.2.4-SNAPSHOT`, or with a vendor's suffix, as `4.0.8.2`.

    Raises:
        UnsupportedRelease: it is not a release of a supported line.
    """
    text = version.strip()
    match = _VERSION.fullmatch(text)
    supported = f"supported lines: {', '.join(LINES)}"
    if match is None:
        raise UnsupportedRelease(f"unknown version {text!r} of Pulsar ({supported})", "check the address")
    line, patch = match["line"], int(match["patch"]) - bool(_EARLY.search(match["suffix"]))
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
