"""Move a live Pulsar cluster from ZooKeeper to Oxia on this machine, and verify that nothing was lost.

`python -m deploy.demo` (`make demo`) starts real servers and a worker, runs producers and consumers, migrates through
the `temporal` CLI, checks the outcome, and leaves servers and worker running for a look around. The exit code is 0 only
if every check held. `python -m deploy.demo down` (`make demo-down`) ends them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from deploy.devstack import supervise
from deploy.devstack.admin import Admin
from deploy.devstack.cache import cache_folder
from deploy.devstack.errors import DevStackError
from deploy.devstack.provision import provision
from deploy.devstack.stack import Stack, StackSpec
from deploy.devstack.supervise import ProcessId, ProcessRecord
from deploy.devstack.traffic import Churn, Traffic
from models.metadata_store import Phase
from models.migration import Outcome, PhaseEntry, Report, Status
from worker.exits import CommandFailed
from worker.operations import against_temporal
from worker.view import View, look
from workflows.details import describe

CLUSTER = "demo"
WORKFLOW_ID = f"metadata-store/{CLUSTER}"
SPEC = StackSpec(
    zookeepers=1,
    bookies=1,
    brokers=2,
    oxias=1,
    temporal=True,
    cluster=CLUSTER,
    # Most topics here have no clients, and brokers would delete them after a minute.
    broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
)

TENANTS = 3
NAMESPACES = 2
TOPICS = 20
BUSY_TOPICS = 6
NEW_TOPICS = 20

_SEND_EVERY = 0.05
_ARRIVAL_LIMIT = 30.0
_ANSWER_LIMIT = 60.0
_WORKER_LIMIT = 90.0
_MIGRATION_LIMIT = 300.0
_LOOK_EVERY = 0.3
_WIDTH = 108
_LONGEST_LINE = 480


class DemoFailed(Exception):
    """The demo cannot go on; the message says why and where to look."""


def main(arguments: list[str]) -> int:
    """Run the demo, or end what it left running; returns the exit code."""
    try:
        if arguments == ["down"]:
            take_down()
            return 0
        if arguments:
            raise DemoFailed("usage: python -m deploy.demo [down]")
        return Demo().run()
    except (DemoFailed, DevStackError, CommandFailed, httpx.HTTPError) as error:
        sys.stderr.write(f"demo: {error}\n(make demo-down ends what still runs)\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ndemo: interrupted\n")
        take_down()
        return 130


def take_down() -> None:
    """End the worker and the servers of an earlier demo, and remove their folder."""
    folder = _folder()
    if not folder.exists():
        return
    worker = ProcessRecord(folder / "worker.json").read()
    if worker is not None:
        worker.send(signal.SIGTERM)
        if not supervise.wait_gone(worker, None, 25):
            worker.send(signal.SIGKILL)
    if (folder / "stack" / "state.json").exists():
        Stack.open(folder / "stack").down(graceful=False)
    shutil.rmtree(folder)
    _say("took down the servers and the worker of the demo")


class Demo:
    """One demo, from nothing to its verdict."""

    def __init__(self) -> None:
        take_down()
        self._begun = time.monotonic()
        self._folder = _folder()
        self._stack = Stack(SPEC, self._folder / "stack", provision(), detach=True)
        self._failed: list[str] = []

    def run(self) -> int:
        """Tell the whole story; returns the exit code."""
        self._start_servers()
        admin = Admin(self._stack.admin_urls[0], timeout=60)
        _title("A live cluster")
        topics = admin.create_all((f"tenant-{t}/ns-{n}/topic-{i:02}" for t, n, i in _numbers()), CLUSTER)
        _say(f"{TENANTS} tenants, {TENANTS * NAMESPACES} namespaces, {len(topics)} topics")
        log = self._folder / "traffic.log"
        churn = Churn(admin, "tenant-1/ns-1/during-")
        busy = topics[:: len(topics) // BUSY_TOPICS]
        with Traffic(self._stack.broker_url, busy, interval=_SEND_EVERY, log=log) as traffic, churn:
            _say(f"from now on {len(traffic.lanes)} producers and {len(traffic.lanes)} consumers run,")
            _say("and somebody creates topics, one after the other")
            self._rehearse()
            before = admin.ledger_counts(topics)
            report, run_id = self._migrate(
                traffic, lambda: self._after_commit(admin, [*topics, *churn.created], before)
            )
            traffic.stop(_ARRIVAL_LIMIT)
        self._verify(report, traffic)
        self._verify_churn(admin, churn)
        return self._conclude(report, run_id)

    def _start_servers(self) -> None:
        _title("Servers")
        os.environ["TEMPORAL_ADDRESS"] = self._stack.temporal_address

        def progress(line: str) -> None:
            _say(line)
            if line.startswith("temporal:"):
                self._start_worker()

        self._stack.up(progress)
        ready = self._folder / "worker.ready"
        worker = ProcessRecord(self._folder / "worker.json").read()
        _until(lambda: ready.exists() or not (worker and worker.alive), _WORKER_LIMIT)
        if not ready.exists():
            raise DemoFailed(f"the worker did not get ready; see {self._folder / 'worker.log'}")
        _say(ready.read_text().strip())

    def _start_worker(self) -> None:
        os.environ["PULSAR_MIGRATE_METRICS_ADDRESS"] = f"127.0.0.1:{_free_port()}"
        command = [sys.executable, "-m", "worker.cli", "worker", "--ready-file", str(self._folder / "worker.ready")]
        root = Path(__file__).parents[1]
        child = supervise.spawn(command, cwd=root, log=self._folder / "worker.log", detach=True)
        found = supervise.inspect(child.pid)
        if found is None:
            raise DemoFailed(f"the worker ended at once; see {self._folder / 'worker.log'}")
        ProcessRecord(self._folder / "worker.json").write(ProcessId(pid=child.pid, started=found[1]))

    def _rehearse(self) -> None:
        _title("Dry run: the plan, and nothing is written")
        self._temporal(*_start_words({**self._plan(), "dry_run": True}))
        self._temporal("workflow", "result", "--workflow-id", WORKFLOW_ID)
        planned = _report(_look())
        if planned.outcome is not Outcome.PLANNED or not planned.summary.startswith("ready"):
            raise DemoFailed(f"the dry run says: {planned.summary}")

    def _migrate(self, traffic: Traffic, after_commit: Callable[[], None]) -> tuple[Report, str]:
        _title("The migration")
        self._temporal(*_start_words({**self._plan(), "validation_window": "PT1H"}))
        self._follow(traffic)
        after_commit()
        _title("The end of the validation window")
        words = ["workflow", "update", "execute", "--workflow-id", WORKFLOW_ID, "--name", "change_window"]
        self._temporal(*words, "--input", '{"remaining":"PT30M"}')
        words = ["workflow", "signal", "--workflow-id", WORKFLOW_ID, "--name", "cleanup"]
        self._temporal(*words, "--input", '"demo: checks are done"')
        self._temporal("workflow", "result", "--workflow-id", WORKFLOW_ID)
        end = _look()
        return _report(end), end.run_id

    def _plan(self) -> dict[str, str]:
        return {"cluster": CLUSTER, "source": self._stack.zk_url, "target": self._stack.oxia_url}

    def _follow(self, traffic: Traffic) -> None:
        """Print each phase as it ends and each change of progress, until the validation window is open."""
        begun, printed, last = time.monotonic(), 0, ""
        while True:
            status = _look().status
            if status is None:
                raise DemoFailed(f"the worker does not answer; see {self._folder / 'worker.log'}")
            for entry in status.history[printed:]:
                if entry.ended is None:
                    break
                printed += 1
                _say(_phase_line(entry, traffic))
            running = _running_line(status)
            if running != last:
                last = running
                if running:
                    _say(f"  … {running}")
            if status.phase == Phase.VALIDATION and status.waiting:
                return
            if status.outcome is not Outcome.RUNNING or time.monotonic() - begun > _MIGRATION_LIMIT:
                raise DemoFailed(f"the migration is {status.outcome} in {status.phase}: {'; '.join(status.notes)}")
            time.sleep(_LOOK_EVERY)

    def _after_commit(self, admin: Admin, topics: list[str], before: Counter[int]) -> None:
        _title("After COMPLETED: brokers write to Oxia")
        new = admin.create_all((f"tenant-0/ns-0/after-{number:02}" for number in range(NEW_TOPICS)), CLUSTER)
        fresh, now = admin.ledger_counts(new), admin.ledger_counts([*topics, *new])
        reused = sorted(ledger for ledger, uses in now.items() if uses > 1)
        _say(f"ledger ids before: up to {max(before)}; of the {len(new)} new topics: {min(fresh)} to {max(fresh)}")
        self._check(f"{len(new)} topics were created", len(new) == NEW_TOPICS and len(fresh) >= NEW_TOPICS)
        self._check(f"{len(now)} ledgers of {len(topics) + len(new)} topics, no id used twice", not reused)
        self._check("every new ledger id is above every old one", min(fresh) > max(before))

    def _verify(self, report: Report, traffic: Traffic) -> None:
        _title("Verified")
        faults, lanes = traffic.faults(), traffic.lanes
        longest = max(lane.longest_wait for lane in lanes)
        errors = sum(len(lane.send_errors) for lane in lanes)
        self._check(f"outcome: {report.outcome} ({report.summary})", report.outcome is Outcome.DONE)
        compared = report.certificate.get("compared_in_pre_copy", 0)
        blocked, differences = (report.certificate.get(name) for name in ("compared_while_blocked", "differences"))
        self._check(
            f"certificate: {compared:,} records compared beside the traffic, {blocked} while writes were blocked, "
            f"{differences} differences",
            compared > 0 and differences == 0,
        )
        self._check(f"all {traffic.sent:,} acknowledged messages arrived, in order", not faults)
        self._check(f"no send failed; no producer waited longer than {longest:.2f} s for its next message", errors == 0)
        for fault in faults:
            _say(f"       {fault}")

    def _verify_churn(self, admin: Admin, churn: Churn) -> None:
        lost = sorted(set(churn.created) - admin.topics(churn.namespace))
        self._check(f"all {len(churn.created)} topics that were created while the migration ran are there", not lost)
        _say(f"       {churn.refused} creations were refused meanwhile, and tried again")
        for name in lost:
            _say(f"       lost: {name}")

    def _check(self, text: str, held: object) -> None:
        _say(f"{'ok    ' if held else 'FAILED'} {text}")
        if not held:
            self._failed.append(text)

    def _conclude(self, report: Report, run_id: str) -> int:
        workflow = f"{self._stack.temporal_ui}/namespaces/default/workflows/{quote(WORKFLOW_ID, safe='')}/{run_id}"
        _title("Look around")
        _say(f"Web UI        {workflow}/history")
        _say(f"metrics       http://{os.environ['PULSAR_MIGRATE_METRICS_ADDRESS']}/metrics")
        _say(f"worker's log  {self._folder / 'worker.log'}")
        _say(f"your shell    export TEMPORAL_ADDRESS={self._stack.temporal_address}")
        _say(f"              temporal is {self._stack.state.toolchain.temporal}")
        _say("take it down  make demo-down")
        verdict = f"FAILED: {len(self._failed)} checks" if self._failed else "verified"
        blocked = report.figures["blocked_seconds"]
        _say(f"\n{verdict}: metadata writes were blocked for {blocked:.2f} s; {_since(self._begun)} in all")
        return 1 if self._failed else 0

    def _temporal(self, *words: str) -> None:
        """Run a `temporal` command in plain sight."""
        _say(_shell("temporal", *words))
        command = [str(self._stack.state.toolchain.temporal), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_LIMIT, check=False)
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"{shlex.join(command)} gave no answer in {_ANSWER_LIMIT:.0f} s") from error
        if done.returncode:
            raise DemoFailed(f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        for line in done.stdout.rstrip().splitlines():
            _say(f"  {line if len(line) <= _LONGEST_LINE else f'{line[:_LONGEST_LINE]}…'}")


def _look() -> View:
    return against_temporal(lambda client: look(client, WORKFLOW_ID))


def _report(view: View) -> Report:
    if view.report is None:
        raise DemoFailed(f"the migration failed: {view.failure.message if view.failure else view.execution}")
    return view.report


def _numbers() -> Iterator[tuple[int, int, int]]:
    return ((t, n, i) for t in range(TENANTS) for n in range(NAMESPACES) for i in range(TOPICS))


def _start_words(plan: dict[str, Any]) -> list[str]:
    words = ["workflow", "start", "--type", "MetadataStoreMigration", "--task-queue", "pulsar-migrate"]
    return [*words, "--workflow-id", WORKFLOW_ID, "--fail-existing", "--input", json.dumps(plan, separators=(",", ":"))]


def _phase_line(entry: PhaseEntry, traffic: Traffic) -> str:
    seconds = entry.seconds(entry.started)
    traffic_so_far = f"{traffic.sent:>7,} messages"
    return f"  {entry.phase:<12} {entry.outcome:<5} {seconds:>6.1f} s   undo: {entry.undo:<10} {traffic_so_far}"


def _running_line(status: Status) -> str:
    parts = [describe(status.progress)] if status.progress else []
    parts += [f"waits for {status.waiting.why}"] if status.waiting else []
    return f"{status.phase}: {'; '.join(parts)}" if parts else ""


def _shell(*words: str) -> str:
    """A command as one types it, folded where it is long; options stay beside their values."""
    pairs: list[str] = []
    for word in words:
        if pairs and pairs[-1].startswith("-") and " " not in pairs[-1] and not word.startswith("-"):
            pairs[-1] += f" {shlex.quote(word)}"
        else:
            pairs.append(shlex.quote(word))
    lines = ["$"]
    for pair in pairs:
        if len(lines[-1]) + len(pair) + 3 > _WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {pair}"
    return "\n".join(lines)


def _since(begun: float) -> str:
    return f"{time.monotonic() - begun:.0f} s"


def _until(holds: Callable[[], bool], limit: float) -> None:
    deadline = time.monotonic() + limit
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _folder() -> Path:
    return cache_folder() / "demo"


def _title(text: str) -> None:
    _say(f"\n== {text} ==")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
