"""Checks of the releases of servers, for prechecks and `doctor`: unsupported and mixed ones, and known defects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from activities.lifecycle.precheck import Findings
from clients.errors import StoreError
from clients.pulsar.admin.client import PulsarAdminReader
from models.defects import PAGE, Defect, Product, defects_of, unknown_ids
from models.lifecycle.input import Accepted
from models.releases import PAGE as RELEASES_PAGE
from models.releases import (
    TESTED,
    TESTED_ZOOKEEPER,
    Behaviour,
    Release,
    UnsupportedRelease,
    behaviour_differences,
    parse_release,
)

_BOOKKEEPER_URI = "bookkeeperMetadataServiceUri"
_ONE_RELEASE = "run the same tested release on all servers"
_NOTHING_ACCEPTED = Accepted()


class SeenBroker(NamedTuple):
    """Release and settings that a broker reports.

    Attributes:
        name: of the broker, for messages.
        version: its release; empty if it could not be read.
        settings: by their names in `broker.conf`; None if they could not be read.
        why: reason why something could not be read.
    """

    name: str
    version: str
    settings: Mapping[str, str] | None
    why: str = ""


def read_broker(name: str, reader: PulsarAdminReader) -> SeenBroker:
    """Return a broker's release and settings; values that it does not report are empty."""
    version = ""
    try:
        version = reader.brokers.version()
        return SeenBroker(name, version, reader.brokers.runtime_configuration())
    except StoreError as error:
        return SeenBroker(name, version, None, str(error))


def check_releases(
    findings: Findings,
    migration: str,
    brokers: Sequence[SeenBroker],
    *,
    accepted: Accepted = _NOTHING_ACCEPTED,
    unseen: Collection[Product] = (),
) -> Release | None:
    """Add findings for unsupported releases, and for known defects that matter in a migration.

    Args:
        findings: get a blocker for a defect that can lose data in this migration, and warnings for others.
        migration: its kind, or `kind/mode`; empty to check only that releases are supported.
        brokers: all registered brokers of a cluster; may be empty.
        accepted: by the operator.
        unseen: products whose servers take part, and do not report their release.

    Returns:
        The oldest release, which limits the features of the cluster; None if none is known.
    """
    if not brokers:
        findings.warn(f"no broker is registered, so no release is known; compare yours with {PAGE}")
    releases = _releases(findings, brokers, accepted)
    for name in unknown_ids(accepted.defects):
        findings.block("UNKNOWN_DEFECT", f"accept_defects names {name!r}, which is not a known defect", f"see {PAGE}")
    for defect in defects_of(migration, Product.PULSAR):
        having = [
            broker.name
            for broker, release in zip(brokers, releases, strict=True)
            if release is not None and defect.affects(release, broker.settings)
        ]
        if having:
            _note(findings, defect, migration, having, accepted.defects)
    for product in unseen:
        if defects := defects_of(migration, product):
            named = ", ".join(f"{defect.id} ({_repair(defect)})" for defect in defects)
            findings.warn(
                f"servers of {product.display} do not report their release; check yours for {named}; see {PAGE}"
            )
    identified = [(release, broker) for release, broker in zip(releases, brokers, strict=True) if release]
    for release, broker in identified:
        _check_parameters(findings, release, broker)
    if not identified:
        return None
    oldest, newest = (choose(release for release, _ in identified) for choose in (min, max))
    for text in behaviour_differences(oldest, newest, migration):
        findings.warn(f"brokers differ: {text} See {RELEASES_PAGE}")
    return oldest


def check_zookeepers(findings: Findings, versions: Mapping[str, str], accepted: Accepted) -> None:
    """Add findings for ZooKeeper servers with an untested release.

    Args:
        findings: get the result.
        versions: by server; empty for a server that does not report it.
        accepted: by the operator.
    """
    if silent := [server for server, version in versions.items() if not version]:
        findings.warn(
            f"{', '.join(silent)} do not report their release of ZooKeeper (`srvr` is not in 4lw.commands.whitelist); "
            f"{TESTED_ZOOKEEPER} was tested"
        )
    others = {
        f"{server} ({version})" for server, version in versions.items() if version and not _is_tested_zookeeper(version)
    }
    if others:
        cause = f"releases of ZooKeeper other than {TESTED_ZOOKEEPER} were not tested: {', '.join(sorted(others))}"
        refuse_untested(findings, "UNTESTED_RELEASE", cause, _ONE_RELEASE, accepted)


def refuse_untested(findings: Findings, code: str, cause: str, cure: str, accepted: Accepted) -> None:
    """Add a warning for untested releases if the operator accepts them, else a blocker.

    Args:
        findings: get the result.
        code: of the blocker.
        cause: names the releases.
        cure: alternative to accepting them.
        accepted: by the operator.
    """
    if accepted.untested_versions:  # mutant: coverage/untested-releases-pass
        findings.warn(cause)
    else:
        findings.block(code, cause, f'{cure}, or set "allow_untested_versions": true')


# Inside ---------------------------------------------------------------------------------------------------------------


def _releases(findings: Findings, brokers: Sequence[SeenBroker], accepted: Accepted) -> list[Release | None]:
    releases: list[Release | None] = []
    refused: dict[str, UnsupportedRelease] = {}
    for broker in brokers:
        if not broker.version:
            findings.warn(f"the release of {broker.name} is not known, nor are its defects ({broker.why})")
            releases.append(None)
            continue
        try:
            releases.append(parse_release(broker.version))
        except UnsupportedRelease as error:
            releases.append(None)
            refused.setdefault(broker.version, error)
    for error in refused.values():
        findings.block("UNSUPPORTED_RELEASE", error.cause, error.cure)
    versions = {broker.name: broker.version for broker in brokers}
    reported = {version for version in versions.values() if version}
    if len(reported) == 1 and not all(versions.values()):
        unreached = ", ".join(sorted(name for name, version in versions.items() if not version))
        cause = f"the release of {unreached} is not known, and may differ from {min(reported)}, which the others have"
        refuse_untested(findings, "MIXED_RELEASES", cause, "let the worker reach its admin interface", accepted)
    elif len(reported) > 1:
        named = ", ".join(f"{name} {version or 'unknown'}" for name, version in sorted(versions.items()))
        oldest = min((release for release in releases if release), default=None)
        decides = f"; the oldest, {oldest}, decides what the migration relies on" if oldest else ""
        refuse_untested(
            findings, "MIXED_RELEASES", f"brokers have different releases: {named}{decides}", _ONE_RELEASE, accepted
        )
    untested = sorted({release.text for release in releases if release and not release.tested})
    if untested:
        cause = f"Pulsar {', '.join(untested)} was not tested; {', '.join(TESTED)} were"
        refuse_untested(findings, "UNTESTED_RELEASE", cause, _ONE_RELEASE, accepted)
    return releases


def _is_tested_zookeeper(version: str) -> bool:
    return version == TESTED_ZOOKEEPER or version.startswith(f"{TESTED_ZOOKEEPER}.")


def _check_parameters(findings: Findings, release: Release, broker: SeenBroker) -> None:
    uri = (broker.settings or {}).get(_BOOKKEEPER_URI) or ""
    if "?" in uri and not release.has(Behaviour.STORE_PARAMETERS):
        findings.block(
            "STORE_PARAMETERS",
            f"{broker.name} has {_BOOKKEEPER_URI}={uri}, and Pulsar {release} reads the parameters after the "
            "question mark as part of the store's name",
            "remove the parameters from broker.conf and restart the broker, or upgrade it to 4.2.4 or newer",
        )


def _note(findings: Findings, defect: Defect, migration: str, having: Sequence[str], accepted: Collection[str]) -> None:
    if not defect.refuses(migration):
        findings.warn(f"known defect {defect}")
    elif defect.id in accepted:
        findings.warn(f"accepted defect {defect}")
    else:
        findings.block(
            f"DEFECT_{defect.id}",
            f"{', '.join(having)}: {defect.symptom} {defect.why} ({defect.reference})",
            f'{defect.advice} To accept the loss, set "accept_defects": ["{defect.id}"]',
        )


def _repair(defect: Defect) -> str:
    return f"repaired in {', '.join(defect.fixed_in)}" if defect.fixed_in else "no known repair"
