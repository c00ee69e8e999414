"""The part of PRECHECK that asks the registered brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from activities.bookie_cluster.broker_control import missing_settings
from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.brokers import bookie_cluster_of
from activities.pulsar.exclusion import no_brokers
from activities.pulsar.registrations import BROKERS, Service, brokers, persistent_registration
from activities.pulsar.releases import SeenBroker, check_releases
from models.bookie_cluster.input import Routing
from models.defects import Product
from models.releases import Behaviour

_ENSEMBLE = "managedLedgerDefaultEnsembleSize"


def check_brokers(
    task: BookieClusterTask, findings: Findings, bookies: int | None, *, committed: bool
) -> tuple[str, ...]:
    """Check every registered broker; returns their names with their versions.

    Args:
        task: the switch.
        findings: take what was found.
        bookies: writable bookies of the target; None if that is not known.
        committed: brokers were directed to the target already, and may be there.

    Raises:
        StoreError: the brokers' metadata store cannot be read.
    """
    input = task.input
    missing = missing_settings(task.runtime.settings, input.broker_control)
    if missing and input.routing is Routing.RESTART:
        findings.block(
            "BROKER_CONTROL_UNSET",
            f'the worker\'s settings lack {missing}, which "broker_control": "{input.broker_control}" needs',
            'set them and restart the worker, or choose "broker_control": "manual"',
        )
    with task.broker_store() as store:
        running = sorted(brokers(store))
        if persistent := persistent_registration(store, (BROKERS,)):
            findings.blockers.append(persistent)
    if not running:
        # After the commit the switch itself may have stopped brokers, and waits for their start.
        if not (input.allow_no_brokers or committed):
            findings.blockers.append(no_brokers(input.metadata_url))
        findings.warn(f"no broker is registered in {input.metadata_url}; check the address if there should be one")
    return ask_brokers(task, running, findings, bookies, committed=committed)


def ask_brokers(
    task: BookieClusterTask, running: Sequence[Service], findings: Findings, bookies: int | None, *, committed: bool
) -> tuple[str, ...]:
    """Ask these brokers whether they can take part in the switch; returns their names with their versions.

    Args:
        task: the switch.
        running: registered brokers; may be empty.
        findings: take what was found.
        bookies: writable bookies of the target; None if that is not known.
        committed: brokers were directed to the target already, and may be there.
    """
    input = task.input
    with task.broker_view() as view:
        seen = [view.read(broker) for broker in running]
        for answer in seen:
            _check_settings(task, answer, findings, bookies, committed=committed)
        if input.routing is Routing.ATTRIBUTION:
            # A broker that does not answer at all is a blocker already, and may be restarting.
            answering = [broker for broker, answer in zip(running, seen, strict=True) if answer.settings is not None]
            _check_plugin(answering, view.lacks_plugin, findings)
    oldest = check_releases(findings, input.kind, seen, accepted=input.accepted, unseen=(Product.BOOKKEEPER,))
    if input.routing is Routing.ATTRIBUTION and oldest and not oldest.has(Behaviour.LEDGER_PROPERTIES):
        findings.block(
            "NO_LEDGER_PROPERTIES",
            f"brokers of Pulsar {oldest} do not read properties of ledgers, by which routing `attribution` finds them",
            'upgrade all brokers to 4.2 or newer, or use "routing": "restart"',
        )
    return tuple(f"{broker.name} {broker.version or '(version unknown)'}" for broker in seen)


def _check_settings(
    task: BookieClusterTask,
    broker: SeenBroker,
    findings: Findings,
    bookies: int | None,
    *,
    committed: bool,
) -> None:
    source = task.input.source
    seen = bookie_cluster_of(broker)
    # mutant: bookie-cluster/a-broker-without-a-known-release
    if seen.url is None or broker.settings is None or not broker.version:
        findings.block(
            BROKERS_UNKNOWN,
            f"{broker.name}: {seen.why or 'it does not name its release'}, so that neither the bookie cluster that it "
            "uses nor the defects that it has are known",
            "let the worker reach its admin interface, with credentials of a superuser if it asks for them, and trust "
            "its certificate (PULSAR_MIGRATE_ADMIN_*); a broker that was killed vanishes when its session has expired",
        )
        return
    allowed = (source, task.input.target) if committed else (source,)
    if not any(seen.url.overlaps(cluster.root) for cluster in allowed):
        findings.block(
            "BROKERS_ELSEWHERE",
            f"{broker.name} uses {seen.text}, not the source {source.metadataServiceUri}",
            "name the bookie cluster that the brokers use as the source, with the servers as they name them",
        )
    settings = broker.settings
    if str(settings.get("autoSkipNonRecoverableData", "")).lower() == "true":
        findings.block(
            "AUTO_SKIP",
            f"{broker.name} has autoSkipNonRecoverableData=true: it would skip messages that it cannot read at once, "
            "and for good",
            "set it to false in every broker.conf until the window is over",
        )
    # Brokers' new ledgers need bookies too, as do the old ones that move.
    wanted = str(settings.get(_ENSEMBLE, ""))
    if bookies and wanted.isdigit() and int(wanted) > bookies:
        findings.block(
            "ENSEMBLE_TOO_LARGE",
            f"{broker.name} creates ledgers with {_ENSEMBLE}={wanted}, and {task.input.target.name} has {bookies} "
            "writable bookies",
            "start more bookies",
        )


def _check_plugin(running: Sequence[Service], lacks: Callable[[Service], str], findings: Findings) -> None:
    without = [f"{broker.name}: {why}" for broker in running if (why := lacks(broker))]
    if without:
        findings.block(
            "PLUGIN_MISSING",
            f"routing `attribution` needs brokers with the plugin of PIP-477: {'; '.join(without)}",
            'install the plugin on every broker, or use "routing": "restart"',
        )
