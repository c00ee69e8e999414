"""What PRECHECK asked of a namespace and its topics, asked again before its batch moves: days may have passed."""

from __future__ import annotations

from collections.abc import Sequence

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.inventory import read_namespace
from activities.blue_green.precheck_clusters import check_replication
from activities.blue_green.precheck_names import check_shadows
from activities.blue_green.precheck_use import check_expiry
from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.coverage import require_unblocked
from activities.pulsar.feature_census import FeatureCensus


def require_as_asked(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    """Ask again how namespaces and their topics replicate, what shadows them, when they expire and what is unknown.

    Raises:
        ApplicationError: `ParticipantsNotReady`, where PRECHECK would have refused it.
    """
    if not guards:
        return
    findings, census = Findings(), FeatureCensus(task.input.cluster)
    settings = task.green.brokers.runtime_configuration()
    for guard in guards:
        blue = read_namespace(task.blue, guard.namespace, task.context.check)
        if blue is None:
            continue
        check_replication(task, findings, blue)
        check_shadows(findings, task.input.green_cluster, blue)
        check_expiry(task, findings, blue, settings)
        for topic in blue.topics.values():
            census.add_topic(topic)
    census.check(findings, task.input.kind, task.input.accept, [BROKERS_UNKNOWN])
    require_unblocked(findings)
