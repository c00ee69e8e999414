"""Mutants of the controller of scalable topics: what is pruned, what scales by itself, and what rests meanwhile."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_UNIT = "tests/unit/topic_controller"
_FLOWS = "tests/workflows/topic_controller"
_PRUNING = f"{_UNIT}/test_pruning.py"
_SCALE = f"{_UNIT}/test_auto_scale.py"
_DECISION = "models/topic_controller/scale_decision.py"

MUTANTS = (
    Quoted(
        "topic-controller/subscriptions-expire-on-segments",
        "activities/topic_controller/topic.py",
        "    if minutes := max((subscription_expiration(policies, one) for one in settings), default=0):\n",
        "    if minutes := 0:\n",
        ("tests/integration/topic_controller/test_namespaces.py::test_namespaces_that_are_refused",),
    ),
    Quoted(
        "topic-controller/prunes-what-is-left",
        "models/topic_controller/pruning.py",
        "if unread := {name: count for name, count in contents.left.items() if count}:",
        "if unread := {}:",
        (f"{_PRUNING}::test_what_stays",),
    ),
    Quoted(
        "topic-controller/prunes-what-nobody-subscribed-to",
        "models/topic_controller/pruning.py",
        "    if not contents.left and not contents.retention_minutes:\n",
        "    if False:\n",
        (f"{_PRUNING}::test_what_stays",),
    ),
    Quoted(
        "topic-controller/prunes-children-first",
        "models/topic_controller/record.py",
        "            if not segment.root:\n",
        "            if False:\n",
        (f"{_PRUNING}::test_parents_go_before_their_children",),
    ),
    Quoted(
        "topic-controller/merges-what-would-split-again",
        _DECISION,
        "if is_low and both.below(policy.split_at) and",
        "if is_low and",
        (f"{_SCALE}::test_what_would_split_again_is_not_merged",),
    ),
    Quoted(
        "topic-controller/no-merge-cooldown",
        _DECISION,
        "if _cools(watch, seen, policy.merge_cooldown_seconds):",
        "if False:",
        (f"{_SCALE}::test_any_load", f"{_SCALE}::test_idle_neighbours_merge"),
    ),
    Quoted(
        "topic-controller/merges-in-a-window",
        _DECISION,
        "    if decision is None and open_windows:\n",
        "    if False:\n",
        (f"{_SCALE}::test_a_window",),
    ),
    Quoted(
        "topic-controller/a-gateway-reaches-other-clusters",
        "gateway/controllers.py",
        "        if not await self._is_ours(found.id, found.run_id, found.raw_info.first_run_id):\n",
        "        if False:\n",
        ("tests/workflows/gateway/test_gateway.py::test_another_cluster",),
    ),
    Quoted(
        "topic-controller/ids-of-taken-topics-are-used",
        "models/topic_controller/record.py",
        '        changed = {"next_segment_id": self.next_segment_id + len(made), "retired": (*self.retired, *gone)}\n',
        '        changed = {"next_segment_id": self.next_segment_id, "retired": (*self.retired, *gone)}\n',
        (f"{_UNIT}/test_record.py::test_ids_whose_topics_are_taken",),
    ),
    Quoted(
        "topic-controller/topics-of-others-are-deleted",
        "models/topic_controller/record.py",
        "            if one.segment_id not in taken\n",
        "            if True\n",
        (f"{_UNIT}/test_record.py::test_ids_whose_topics_are_taken",),
    ),
    Quoted(
        "topic-controller/rights-do-not-follow",
        "activities/topic_controller/segments.py",
        "    for segment in made if wanted else ():\n",
        "    for segment in ():\n",
        (f"{_UNIT}/test_grants.py",),
    ),
    Quoted(
        "topic-controller/a-late-leave-ends-the-successor",
        "models/topic_controller/sessions.py",
        'if session is None or (instance and session.instance not in ("", instance)):',
        "if session is None:",
        (f"{_FLOWS}/test_sessions.py::test_a_late_leave_is_not_for_the_successor",),
    ),
    Quoted(
        "topic-controller/gives-up-a-segment-that-is-open-again",
        "activities/topic_controller/segments.py",
        "        if not has_ended(task, segment):\n            end_segment(task, segment)\n        # Somebody",
        "        # Somebody",
        (f"{_UNIT}/test_end_of_segments.py",),
    ),
    Quoted(
        "topic-controller/writes-into-a-store-that-is-left",
        "activities/topic_controller/lease.py",
        "        require_here(self._metadata)\n        return super()._required()\n",
        "        return super()._required()\n",
        (f"{_UNIT}/test_fence.py",),
    ),
    Quoted(
        "topic-controller/leads-under-another-cluster-name",
        "activities/topic_controller/context.py",
        "        if cluster != self.input.cluster:\n",
        "        if False:\n",
        (f"{_UNIT}/test_cluster.py",),
    ),
    Quoted(
        "topic-controller/begins-with-a-layout-that-is-gone",
        "workflows/topic_controller/changes.py",
        "                lead.take(prepared.found)\n",
        "",
        (f"{_FLOWS}/test_controller.py::test_a_lost_compare_and_set_is_redone",),
    ),
)
