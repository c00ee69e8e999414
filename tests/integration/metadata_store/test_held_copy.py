"""A copy that stops in its middle, by the automatic throttle or by a pause, and continues."""

from __future__ import annotations

import json

from models.lifecycle.claim import CLAIM, PacedClaim
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from pulsar_devstack.servers.spec import StackSpec
from tests.support.http_server import Answers
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import SharedStack
from tests.support.waiting import wait_for

RECORDS = 200
# Each of the 16 parts waits for some seconds before it writes.
SLOW = 0.0001


def values(url: str) -> dict[str, tuple[bytes, int]]:
    """Return value and version of each record; the source also has the parents of the flag."""
    tree = stores.read_zookeeper(url)
    return {path: (node.value, node.version) for path, node in tree.items() if path.startswith("/records")}


def test_a_copy_stops_and_continues(shared_stack: SharedStack, environment: Environment) -> None:
    """An endpoint stops a running copy, then a pause does; what changes until then is copied, and compared."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source, target = f"{stack.zk_url}/held-copy", f"{stack.second_zk_url}/held-copy"
    answers = {"/may-copy": (200, "")}

    def claim() -> PacedClaim:
        with stores.kazoo(target) as client:
            return PacedClaim.model_validate(json.loads(client.get(CLAIM)[0]))

    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path("/held-copy/records")
        for number in range(RECORDS):
            client.create(f"/held-copy/records/{number}", b"x" * 100)
    with stores.kazoo(stack.second_zk_url) as client:
        client.ensure_path("/held-copy")
    with Answers(answers) as server:
        run = environment.operator.start(
            MetadataStoreInput.model_validate(
                {
                    "cluster": "held-copy",
                    "hold_before_cutover": False,
                    "accept": stores.OTHER_ROOTS,
                    "source": source,
                    "target": target,
                    "validation_window": "PT0S",
                    "allow_no_brokers": True,
                    "throttle": SLOW,
                    # A slow answer of this busy process must not hold the copy.
                    "auto_throttle": {"http": f"{server.base_url}/may-copy", "every": "1s", "timeout": "30s"},
                }
            )
        )
        run.wait_for_progress(Phase.PRE_COPY)
        assert not claim().held

        answers["/may-copy"] = 429, ""
        status = run.wait_until_it_waits_for(WaitKind.AUTO_THROTTLE)
        assert status.waiting is not None
        assert f"{server.base_url}/may-copy: it answers 429" in status.waiting.why
        held = wait_for("the claim", lambda: now if (now := claim()).held else None, 60)
        assert held.held == held.holder.mark
        # Without a limit a copy that is not held ends at once.
        run.set_throttle(None)

        answer = run.steer(Verb.PAUSE, "OPS-7")
        assert "the copy stops" in answer.why
        answers["/may-copy"] = 200, ""
        status = run.wait_until_it_waits_for(WaitKind.PAUSE)
        assert status.waiting is not None
        assert "(OPS-7)" in status.waiting.why
        assert status.phase == Phase.PRE_COPY
        assert len(stores.read_zookeeper(target)) < RECORDS

        with stores.kazoo(source) as client:
            client.set("/records/7", b"changed")
            client.delete("/records/8")
            client.create("/records/new", b"new")
        run.steer(Verb.RESUME)
        report = run.result()
    assert report.outcome is Outcome.DONE
    assert values(target) == values(source)
    assert report.certificate["differences"] == 0
