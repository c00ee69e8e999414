"""The table of releases: which versions are read, which are refused, and what the supported ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.defects import has_defect
from models.releases import (
    DEFAULTS,
    LINES,
    NAMESPACE_POLICIES,
    TOPIC_POLICIES,
    Behaviour,
    Release,
    UnsupportedRelease,
    behaviour_differences,
    default_differences,
    parse_release,
)
from worker.catalog import ALL

_LINE = st.sampled_from(LINES)
_PATCH = st.integers(0, 40)
_TESTED = [parse_release(version) for version in ("4.0.8", "4.2.4", "5.0.1")]


@pytest.mark.parametrize(
    ("version", "line", "patch"),
    [
        ("5.0.1", (5, 0), 1),
        ("4.0.8", (4, 0), 8),
        (" v4.2.4\n", (4, 2), 4),
        ("4.2.4-SNAPSHOT", (4, 2), 3),
        ("4.2.4-20260803-SNAPSHOT", (4, 2), 3),
        ("4.2.4-vendor-SNAPSHOT", (4, 2), 3),
        ("4.2.1-nightly", (4, 2), 0),
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
        ("5.0.0-milestone-2", "before the first release of line 5.0", "upgrade"),
        ("5.0.0-dev", "before the first release of line 5.0", "upgrade"),
        ("4.2.\N{ARABIC-INDIC DIGIT FOUR}", "unknown version", "supported lines"),
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
    """A release does all that an earlier release of its line does, with any suffix of its version."""
    earlier, later = parse_release(f"{line}.{patch}"), parse_release(f"{line}.{patch + 1}{suffix}")
    assert earlier < later
    assert all(later.has(behaviour) for behaviour in Behaviour if earlier.has(behaviour))


@given(st.lists(st.from_regex(r"(4\.0|4\.2|5\.0)\.[0-9]{1,2}", fullmatch=True), min_size=1))
def test_the_oldest_release_is_the_smallest(versions: list[str]) -> None:
    """Of several releases the smallest is the oldest."""
    oldest = min(map(parse_release, versions))
    assert str(oldest) in versions
    assert all(oldest <= parse_release(version) for version in versions)


def test_behaviours_of_the_three_releases() -> None:
    """The tested releases differ as their classes do; each behaviour is named once."""
    assert {behaviour.name: _had(lambda release, row=behaviour: release.has(row)) for behaviour in Behaviour} == {
        "SCALABLE_TOPICS": "--+",
        "KEY_ROUTING": "--+",
        "ENTRY_BUCKETS": "--+",
        "CREATE_IF_MISSING": "--+",
        "SEGMENT_NAMES": "--+",
        "LOAD_RECORDS": "--+",
        "SCALABLE_STATISTICS": "--+",
        "RIGHT_TO_MIGRATE": "--+",
        "ENCODED_NAMES": "--+",
        "LIVE_MIGRATION": "-++",
        "STORE_PARAMETERS": "-++",
        "SESSION_CANARY": "---",
        "POLICIES_IN_STORE": "-++",
        "CLOSES_INACTIVE_TOPICS": "--+",
        "REDIRECTS_ALL_CONSUMERS": "-++",
        "REFUSES_OUTER_WHITE_SPACE": "--+",
        "REFUSES_V1_NAMESPACES": "-++",
        "LEDGER_PROPERTIES": "-++",
        "BATCH_READS": "--+",
    }
    assert [release.minimum_java for release in _TESTED] == [17, 17, 21]


def test_defects_of_the_three_releases() -> None:
    """Defects that code works around, or that were checked in the classes, are those of the releases tested."""
    names = (
        "TERMINATE_FENCES",
        "TERMINATE_REOPENS",
        "PROPERTIES_LOST_ON_OPEN",
        "PROPERTIES_LOST_ON_CLOSE",
        "CURSOR_PROPERTIES_WIPED",
        "COMPRESSED_CURSOR",
        "EMPTY_MIGRATION_URL",
        "LIMIT_LIFTED_LATE",
        "PIP454_RETRY",
    )
    assert [_had(lambda release, name=name: has_defect(release, name)) for name in names] == [
        "++-",
        "++-",
        "++-",
        "+--",
        "++-",
        "-+-",
        "++-",
        "+--",
        "-+-",
    ]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("defaultNumberOfNamespaceBundles", ["4", "4", "32"]),
        ("acknowledgmentAtBatchIndexLevelEnabled", ["false", "true", "true"]),
        ("enableShadowTopics", [None, None, "false"]),
    ],
)
def test_defaults(setting: str, expected: list[str | None]) -> None:
    """A setting that `broker.conf` does not name has the default of the broker's line, if the line has the setting."""
    assert [release.default(setting) for release in _TESTED] == expected


def test_differences_between_two_releases() -> None:
    """A difference between two releases is named with its release, in the kinds in which it matters."""
    old, middle, new = _TESTED
    assert behaviour_differences(old, new, "metadata-store/live") == behaviour_differences(new, old, "metadata-store")
    (live, parameters, policies) = behaviour_differences(old, middle, "metadata-store")
    assert live.startswith("only 4.2.4: Brokers and bookies take part in a live migration")
    assert (parameters.endswith("(#26067, #26150)"), policies.endswith("(PIP-469)")) == (True, True)
    assert "default of defaultNumberOfNamespaceBundles: 4 in 4.0.8, 32 in 5.0.1" in default_differences(
        old, new, "blue-green"
    )
    assert behaviour_differences(new, parse_release("5.0.9"), "blue-green") == []
    assert default_differences(new, new, "blue-green") == default_differences(old, new, "metadata-store") == []


def test_rows_name_kinds_and_releases_that_there_are() -> None:
    """Each row matters in kinds of the catalog, and each first release is one of a supported line."""
    rows = [*Behaviour, *DEFAULTS.values()]
    assert {kind for row in rows for kind in row.migrations} <= set(ALL)
    firsts = [
        first for row in [*Behaviour, *NAMESPACE_POLICIES.values(), *TOPIC_POLICIES.values()] for first in row.firsts
    ]
    assert all(str(parse_release(first)) == first for first in firsts)


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


def _had(has: Callable[[Release], bool]) -> str:
    """Return a sign for each tested release: + where it has something."""
    return "".join("-+"[has(release)] for release in _TESTED)
