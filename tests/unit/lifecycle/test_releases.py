"""The table of releases: which versions are read, which are refused, and what the supported ones do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.releases import LINES, Release, UnsupportedRelease, parse_release

_LINE = st.sampled_from(LINES)
_PATCH = st.integers(0, 40)


@pytest.mark.parametrize(
    ("version", "line", "patch"),
    [
        ("5.0.1", (5, 0), 1),
        ("4.0.8", (4, 0), 8),
        (" v4.2.4\n", (4, 2), 4),
        ("4.2.4-SNAPSHOT", (4, 2), 3),
        ("5.0.1-rc-2", (5, 0), 0),
        ("5.0.1-candidate-1", (5, 0), 0),
        ("4.0.8.2", (4, 0), 8),
        ("4.0.8-vendor-3", (4, 0), 8),
        ("4.2.4+build.7", (4, 2), 4),
        ("4.0.99", (4, 0), 99),
    ],
)
def test_versions_are_read(version: str, line: tuple[int, int], patch: int) -> None:
    """A version is read with and without a suffix; a build before a release counts as the release before."""
    release = parse_release(version)
    assert (release.line, release.patch, str(release)) == (line, patch, version.strip())


@pytest.mark.parametrize(
    ("version", "cause", "cure"),
    [
        ("5.0.0-M1", "before the first release of line 5.0", "upgrade all brokers to the newest release of line 5.0"),
        ("5.0.0-M2", "before the first release of line 5.0", "upgrade all brokers to the newest release of line 5.0"),
        ("5.0.0-SNAPSHOT", "before the first release of line 5.0", "upgrade"),
        ("3.3.9", "3.3.9 is not supported", "upgrade all brokers to a supported line"),
        ("4.1.3", "4.1.3 is not supported", "upgrade all brokers to a supported line"),
        ("5.1.0", "5.1.0 is not supported", "a pulsar-migrate that supports line 5.1"),
        ("unknown", "unknown version 'unknown'", "supported lines: 4.0, 4.2, 5.0"),
        ("", "unknown version ''", "supported lines: 4.0, 4.2, 5.0"),
    ],
)
def test_other_versions_are_refused(version: str, cause: str, cure: str) -> None:
    """A version of no supported line is refused, and so is a milestone; the message has the cause and the cure."""
    with pytest.raises(UnsupportedRelease) as refused:
        parse_release(version)
    assert cause in str(refused.value)
    assert cure in str(refused.value)


@given(_LINE, _PATCH, st.sampled_from(["", ".1", "-vendor-2", "+7"]))
def test_a_later_patch_has_what_an_earlier_one_has(line: str, patch: int, suffix: str) -> None:
    """A release has every behaviour that an earlier release of its line has, whatever suffix its version has."""
    earlier, later = parse_release(f"{line}.{patch}"), parse_release(f"{line}.{patch + 1}{suffix}")
    assert earlier < later
    assert all(getattr(later, name) for name in _repairs() if getattr(earlier, name))


@given(st.lists(st.from_regex(r"(4\.0|4\.2|5\.0)\.[0-9]{1,2}", fullmatch=True), min_size=1))
def test_the_oldest_release_is_the_smallest(versions: list[str]) -> None:
    """Of several releases the smallest is the oldest."""
    oldest = min(map(parse_release, versions))
    assert str(oldest) in versions
    assert all(oldest <= parse_release(version) for version in versions)


def test_what_the_three_releases_do() -> None:
    """The releases that are tested differ as their classes do."""
    releases = [parse_release(version) for version in ("4.0.8", "4.2.4", "5.0.1")]
    rows = {name: "".join("-+"[getattr(release, name)] for release in releases) for name in _repairs()}
    assert rows == {
        "has_scalable_topics": "--+",
        "routes_keys_by_high_bits": "--+",
        "has_entry_buckets": "--+",
        "honours_create_if_missing": "--+",
        "reports_byte_rates": "--+",
        "has_safe_scalable_statistics": "--+",
        "names_clients_by_segment": "--+",
        "has_permission_to_migrate": "--+",
        "decodes_scalable_names": "--+",
        "terminates_safely": "--+",
        "has_live_metadata_migration": "-++",
        "repaired_metadata_migration": "--+",
        "takes_store_parameters": "-++",
        "has_topic_policies_in_store": "-++",
        "closes_inactive_topics": "--+",
        "unblocks_producers_at_once": "-++",
        "sends_all_consumers_on": "-++",
        "checks_migration_urls": "--+",
        "has_ledger_properties": "-++",
        "keeps_ledger_properties_on_open": "--+",
        "keeps_ledger_properties_on_close": "-++",
        "keeps_cursor_properties": "--+",
        "refuses_outer_white_space": "--+",
    }
    assert [release.has_v1_namespaces for release in releases] == [True, False, False]
    assert [release.default_bundles for release in releases] == [4, 4, 32]
    assert [release.default_shedder.rpartition(".")[2] for release in releases] == [
        "ThresholdShedder",
        "ThresholdShedder",
        "AvgShedder",
    ]
    assert [release.default_compression for release in releases] == ["NONE", "NONE", "LZ4"]
    assert [release.minimum_java for release in releases] == [17, 17, 21]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("replication_clusters", [True, True, True]),
        ("allowed_topic_property_keys_for_metrics", [False, True, True]),
        ("scalableTopicAutoScalePolicy", [False, False, True]),
    ],
)
def test_policies_that_not_every_release_has(policy: str, expected: list[bool]) -> None:
    """A release that lacks a namespace policy says so; a policy that the table does not name is had by all."""
    assert [parse_release(f"{line}.8").lacked_namespace_policy(policy) is None for line in LINES] == expected


def test_topic_policies_that_not_every_release_has() -> None:
    """A subscription's own end of life, which clients rely on, is unknown to the oldest line alone."""
    lacked = [parse_release(f"{line}.8").lacked_topic_policy("subscriptionExpirationTime") for line in LINES]
    assert [policy is not None and policy.relied_on for policy in lacked] == [True, False, False]
    assert parse_release("4.0.8").lacked_topic_policy("retention") is None


def _repairs() -> list[str]:
    """Return the names of the properties that are true from some release on, in the order of the table."""
    return [
        name
        for name, member in vars(Release).items()
        if isinstance(member, property) and isinstance(getattr(parse_release("5.0.1"), name), bool)
        if name != "has_v1_namespaces"
    ]
