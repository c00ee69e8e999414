"""A workflow that Temporal resets: its activities run again, and those from before the reset may still be at work."""

from __future__ import annotations

import json

import pytest

from models.lifecycle.claim import CLAIM, Claim
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from pulsar_devstack.servers.stack import StackSpec
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

RECORDS = 200


@pytest.mark.parametrize(
    "activity",
    [pytest.param("metadata_store_pre_copy", marks=pytest.mark.exhaustive), ""],
    ids=["before", "while-it-runs"],
)
def test_a_reset_continues_and_fences_the_previous_attempt(
    make_stack: MakeStack, environment: Environment, activity: str
) -> None:
    """A migration that is reset during its copy copies again under a newer claim, which stops the previous attempt."""
    stack = make_stack(StackSpec(zookeepers=1, oxias=1))
    with stores.kazoo(stack.zk_url) as source:
        for number in range(RECORDS):
            source.create(f"/records/{number}", b"x" * 100, makepath=True)
    plan = {
        "cluster": "reset",
        "accept": stores.OTHER_ROOTS,
        "source": stack.zk_url,
        "target": stack.oxia_url,
        "validation_window": "PT0S",
    }
    # It would take minutes; this test takes seconds, or more on a busy machine.
    slow = {"throttle": 0.0001, "allow_no_brokers": True}

    def claim() -> Claim | None:
        target = stores.read_oxia(stack.oxia_url, without_coordinator=False)
        return Claim.model_validate(json.loads(target[CLAIM].value)) if CLAIM in target else None

    run = environment.operator.start(MetadataStoreInput.model_validate({"hold_before_cutover": False, **plan, **slow}))
    run.wait_for_phase(Phase.PRE_COPY)
    before = wait_for("the copy's claim", claim, 30)
    # A task of the workflow after the one that scheduled the copy.
    run.steer(Verb.PAUSE)
    run.steer(Verb.RESUME)
    run.reset(activity)
    # Its holder: the attempt before notes in its claim what it has found.
    after = wait_for("a newer claim", lambda: now if (now := claim()) and now.holder != before.holder else None, 60)
    assert after.run_id == before.run_id
    assert after.is_newer_than(before.holder)
    assert not before.is_newer_than(after.holder)
    run.set_throttle(None)
    assert run.result().outcome is Outcome.DONE
    assert set(stores.read_oxia(stack.oxia_url)) == set(stores.read_zookeeper(stack.zk_url))
