"""Mutants of the topic controller: what is pruned, what scales by itself, and who leads."""

from __future__ import annotations

from tests.mutants.marks import drop, swap, without
from tests.mutants.mutant import mutants

_NAMESPACES = "tests/integration/topic_controller/test_namespaces.py"
_PRUNING = "tests/unit/topic_controller/test_pruning.py"
_AUTO_SCALE = "tests/unit/topic_controller/test_auto_scale.py"
_GATEWAY = "tests/workflows/gateway/test_gateway.py"
_CONNECTIONS = "tests/unit/gateway/test_connections.py"
_API = "tests/unit/gateway/test_api.py"
_GATE = "tests/unit/gateway/test_gate.py"
_GRANTS_OF_TOKENS = "tests/unit/gateway/test_grants.py"
_RECORD = "tests/unit/topic_controller/test_record.py"
_GRANTS = "tests/unit/topic_controller/test_grants.py"
_SESSIONS = "tests/workflows/topic_controller/test_sessions.py"
_END_OF_SEGMENTS = "tests/unit/topic_controller/test_end_of_segments.py"
_FENCE = "tests/unit/topic_controller/test_fence.py"
_CLUSTER = "tests/unit/topic_controller/test_cluster.py"
_OLDER_RECORD = "tests/unit/topic_controller/test_older_record.py"
_CONTROLLER = "tests/workflows/topic_controller/test_controller.py"
_RESETS = "tests/workflows/topic_controller/test_resets.py"

MUTANTS = mutants(
    {
        f"{_RESETS}::test_an_update_that_is_sent_again": {
            "topic-controller/a-reset-makes-changes-again": swap("await self.detect_reset()", "self.require_current()"),
        },
        f"{_NAMESPACES}::test_namespaces_that_are_refused": {
            "topic-controller/subscriptions-expire-on-segments": drop,
        },
        f"{_PRUNING}::test_segments_that_must_stay": {
            "topic-controller/prunes-what-is-left": drop,
            "topic-controller/prunes-what-has-no-subscription": drop,
        },
        f"{_PRUNING}::test_parents_go_before_their_children": {
            "topic-controller/prunes-children-first": drop,
        },
        f"{_AUTO_SCALE}::test_segments_that_would_split_again_are_not_merged": {
            "topic-controller/merges-what-would-split-again": without(1),
        },
        (f"{_AUTO_SCALE}::test_any_load", f"{_AUTO_SCALE}::test_idle_neighbours_merge"): {
            "topic-controller/no-merge-cooldown": drop,
        },
        f"{_AUTO_SCALE}::test_a_window_of_more_segments": {
            "topic-controller/merges-in-a-window": drop,
        },
        f"{_GATEWAY}::test_a_hundred_thousand_consumers": {
            "topic-controller/consumers-without-a-limit": drop,
        },
        f"{_API}::test_a_lost_deletion": {
            "topic-controller/a-lost-deletion-is-confirmed": drop,
        },
        f"{_GATEWAY}::test_the_longest_names": {
            "topic-controller/ids-that-temporal-refuses": drop,
        },
        "tests/unit/topic_controller/test_admission.py::test_long_owners_are_refused": {
            "topic-controller/owners-of-any-length": drop,
        },
        f"{_GATEWAY}::test_another_cluster": {
            "topic-controller/a-gateway-reaches-other-clusters": drop,
        },
        f"{_CONNECTIONS}::test_silent_connections": {
            "topic-controller/silent-connections-keep-others-out": swap("len(self) >= self._most", "False"),
        },
        f"{_GATE}::test_rights_by_route_role_and_tenant": {
            "topic-controller/a-token-reaches-other-tenants": swap("not {", "True or {"),
        },
        f"{_GRANTS_OF_TOKENS}::test_file_without_tokens_revokes_all": {
            "topic-controller/a-deleted-file-keeps-its-tokens": swap("else None", "else self._content"),
        },
        f"{_RECORD}::test_ids_whose_topics_are_taken": {
            "topic-controller/ids-of-taken-topics-are-used": swap(
                "self.next_segment_id + len(created)", "self.next_segment_id"
            ),
            "topic-controller/topics-of-others-are-deleted": drop,
        },
        _GRANTS: {
            "topic-controller/rights-do-not-follow": drop,
        },
        f"{_SESSIONS}::test_a_late_leave_does_not_end_the_successors_session": {
            "topic-controller/a-late-leave-ends-the-successor": without(1),
        },
        _END_OF_SEGMENTS: {
            "topic-controller/gives-up-a-segment-that-is-open-again": drop,
        },
        _FENCE: {
            "topic-controller/writes-into-a-store-that-is-left": drop,
        },
        _OLDER_RECORD: {
            "topic-controller/continues-with-an-older-record": swap("opening.epoch", "0"),
            "topic-controller/prunes-an-older-record": drop,
            "topic-controller/assigns-from-an-older-record": drop,
            "topic-controller/observes-an-older-record": drop,
            "topic-controller/adds-addresses-to-an-older-record": swap("new.epoch < epoch", "False"),
        },
        _CLUSTER: {
            "topic-controller/leads-under-another-cluster-name": drop,
        },
        f"{_CONTROLLER}::test_a_lost_compare_and_set_is_redone": {
            "topic-controller/starts-with-a-layout-that-is-gone": drop,
        },
    }
)
