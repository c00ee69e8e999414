"""Mutants of what the blue-green migration refuses before anything moves."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_STORES = "tests/unit/blue_green/test_stores.py"
_CLIENTS = "tests/unit/blue_green/test_client_versions.py"
_IN_TOPICS = "tests/integration/blue_green/test_topic_use.py"
_CUT = "tests/unit/blue_green/test_cut_messages.py"
_USE = "tests/unit/blue_green/test_topic_use.py"
_FIT = "tests/unit/blue_green/test_fit.py"
_NAMES = "tests/unit/blue_green/test_names.py"

MUTANTS = (
    Quoted(
        "blue-green/configuration-store-of-both",
        "activities/blue_green/precheck_stores.py",
        "    if shared:\n",
        "    if not shared:\n",
        (_STORES,),
    ),
    Quoted(
        "blue-green/configuration-store-apart",
        "models/broker_settings.py",
        'return ("", "") if not store or is_same_store(metadata_store_of(settings), store) else (name, store)',
        'return ("", "")',
        (_STORES,),
    ),
    Quoted(
        "blue-green/java-clients-without-a-lookup",
        "activities/blue_green/client_versions.py",
        '    "Java": (3, 2, 0),\n',
        '    "Java": (3, 0, 0),\n',
        (_CLIENTS,),
    ),
    Quoted(
        "blue-green/brokers-that-want-both-addresses",
        "activities/blue_green/client_versions.py",
        "    if lacks and has_defect(blue, _REDIRECT_NPE):\n",
        "    if False:\n",
        (_CLIENTS,),
    ),
    Quoted(
        "blue-green/message-that-is-cut-in-two",
        "activities/blue_green/throttle.py",
        "same_looks=1, check=check)",
        "same_looks=1)",
        (_CUT, f"{_IN_TOPICS}::test_a_message_that_the_flip_would_cut_in_two"),
    ),
    Quoted(
        "blue-green/chunks-that-are-too-far-back",
        "activities/blue_green/cut_messages.py",
        ' entries" if chunks else ""\n',
        ' entries" if not chunks else ""\n',
        (_USE,),
    ),
    Quoted(
        "blue-green/chunks-that-are-not-confirmed",
        "activities/blue_green/throttle.py",
        "                before = {topic: seen for topic, seen in before.items() if topic not in unread}\n",
        "                check()\n",
        (_CUT,),
    ),
    Quoted(
        "blue-green/chunk-of-a-topic-that-was-loaded-again",
        "activities/blue_green/cut_messages.py",
        "    if stats is None or not stats.publishers:\n",
        "    if stats is None or not stats.publishers or not stats.msg_in_counter:\n",
        (_CUT,),
    ),
    Quoted(
        "blue-green/unfinished-messages",
        "activities/blue_green/cut_messages.py",
        "        if head.producer in waiting and head.is_unfinished:\n",
        "        if head.is_unfinished:\n",
        (_USE,),
    ),
    Quoted(
        "blue-green/chunks-that-came-since-the-precheck",
        "activities/blue_green/movable.py",
        "    if stats.msg_chunk_published:\n",
        "    if False:\n",
        (_USE,),
    ),
    Quoted(
        "blue-green/transactions-since-the-precheck",
        "activities/blue_green/movable.py",
        "    if counts := transactions_in(stats):\n        yield",
        "    if False:\n        yield",
        (_USE,),
    ),
    Quoted(
        "blue-green/old-clients-since-the-precheck",
        "activities/blue_green/movable.py",
        "    for client in clients_in(stats):\n        if",
        "    for client in ():\n        if",
        (_USE,),
    ),
    Quoted(
        "blue-green/replicators-that-are-down",
        "activities/blue_green/movable.py",
        "        down = replicators_down(stats)\n",
        "        down = replicators_down(TopicStats())\n",
        (_USE,),
    ),
    Quoted(
        "blue-green/backlog-of-replication-at-the-flag",
        "activities/blue_green/movable.py",
        "    if not drained:\n",
        "    if drained or stats:\n",
        (_USE,),
    ),
    Quoted(
        "blue-green/copy-of-what-is-replicated",
        "activities/blue_green/precheck_clusters.py",
        "        if input.idle_subscriptions is IdleSubscriptions.COPY:\n",
        "        if input.idle_subscriptions is IdleSubscriptions.SKIP:\n",
        (_USE,),
    ),
    Quoted(
        "blue-green/flag-of-the-cluster-over-what-stays",
        "activities/blue_green/cluster.py",
        "        elif not is_of_brokers(namespace):\n",
        "        elif topics_of(task.blue, namespace):\n",
        (_NAMES,),
    ),
    Quoted(
        "blue-green/flag-that-ends-health-checks",
        "activities/blue_green/cluster.py",
        " and not _defect_of_flag(task)",
        "",
        (_NAMES,),
    ),
    Quoted(
        "blue-green/pattern-that-excludes-nothing",
        "activities/blue_green/precheck_names.py",
        "    if excluded := unused[input.exclude]:\n",
        "    if excluded := unused[input.namespaces]:\n",
        (_NAMES,),
    ),
    Quoted(
        "blue-green/types-of-subscriptions",
        "activities/blue_green/quotas.py",
        "        if sub.consumers and sub.type not in allowed\n",
        "        if False\n",
        (_FIT,),
    ),
)
