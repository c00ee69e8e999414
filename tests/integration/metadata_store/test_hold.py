"""A live migration that is held before its cut-over while the source continues changing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from pulsar_devstack.servers.stack import StackSpec
from tests.support.lifecycle.commands import run_command
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

CLUSTER = "held"
OLD = [f"/bulk/old/{number:05}" for number in range(10_000)]
NEW = [f"/bulk/new/{number:05}" for number in range(10_000)]


# Two starts of a worker are part of it.
def test_changes_during_the_hold_are_copied_before_writes_are_blocked(
    make_stack: MakeStack, environment: Environment
) -> None:
    """20,000 changes and a lost watch cost the cut-over nothing: it copies and compares as for an idle source."""
    stack = make_stack(StackSpec(zookeepers=1, oxias=1, cluster=CLUSTER))
    input = MetadataStoreInput.model_validate(
        {
            "cluster": CLUSTER,
            "accept": stores.OTHER_ROOTS,
            "source": stack.zk_url,
            "target": stack.oxia_url,
            "allow_no_brokers": True,
            "hold_before_cutover": True,
            "validation_window": "PT0S",
        }
    )
    with stores.kazoo(stack.zk_url) as source:
        for path in ("/bulk/old", "/bulk/new"):
            source.ensure_path(path)
        _all([source.create_async(path, b"x" * 100) for path in OLD])
        run = environment.operator.start(input)
        run.wait_until_it_waits_for(WaitKind.HOLD, phase=Phase.CATCH_UP)

        _all([source.set_async(path, b"y" * 100) for path in OLD])
        _all([source.create_async(path, b"y" * 100) for path in NEW])
        changed = len(OLD + NEW)
        run.wait_until("a round", lambda status: status.figures.get("caught_up_before_cutover", 0) >= changed, 300)
        assert _verified(environment, "--path", "/bulk")["equal"] == len(OLD + NEW) + 3
        environment.worker.kill()
        _all([source.set_async(path, b"z" * 100) for path in NEW])
        environment.worker.launch()
        environment.worker.wait_ready()
        run.signal(Verb.PROCEED)
        report = run.result()

    after = _verified(environment)
    assert (after["committed"], after["differing"]["count"]) == (True, 0)
    assert after["equal"] > len(OLD + NEW)
    figures = report.figures
    print({name: figures[name] for name in figures if "seconds" in name or "changed" in name or "caught" in name})
    assert report.outcome is Outcome.DONE
    assert any("the source was scanned by transaction ids" in note for note in report.notes)
    # No service writes: only what the migration itself touches may have changed since the last round.
    assert (figures["changes_known_by"], figures["changed_records"]) == ("watch", 0)
    assert report.certificate["compared_while_blocked"] == 0
    assert stores.assert_equal(stores.read_zookeeper(stack.zk_url), stores.read_oxia(stack.oxia_url)) > len(OLD + NEW)


def _all(asked: list[Any]) -> None:
    for answer in asked:
        answer.get(timeout=60)


def _verified(environment: Environment, *words: str) -> dict[str, Any]:
    """Return the certificate of a verification, which the command line starts and waits for."""
    command = ("verify", f"metadata-store/{CLUSTER}", "--recheck-after", "PT1S", "-o", "json")
    done = run_command(environment, *command, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
