"""Shared parts of the demos: servers, a worker, visible `temporal` commands, checks and a verdict."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cli.operations import against_temporal
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.admin.namespaces import NamespaceAction
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, PhaseEntry, Status, WaitKind
from process.exit_codes import CommandFailed
from pulsar_devstack.errors import DevStackError
from pulsar_devstack.hardening import APPLICATION, Hardening, is_wanted
from pulsar_devstack.plain_links import plain_ports
from pulsar_devstack.servers import processes
from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.ports import free_port
from pulsar_devstack.servers.processes import ProcessId, ProcessRecord
from pulsar_devstack.servers.provision import provision
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_access import ANONYMOUS, ClientAccess
from views.migration import View, read_view

_ANSWER_LIMIT = 60.0
_READY_LIMIT = 90.0
_MIGRATION_LIMIT = 300.0
_LOOK_EVERY = 0.3
_WIDTH = 108
_LONGEST_LINE = 480
_STACK, _SECOND = "stack", "second"
_ROOT = Path(__file__).parents[1]
WORKER, GATEWAY = "worker", "gateway"


class DemoFailed(Exception):
    """The demonstration cannot continue; the message says why and where to look."""


def run_demo(demo: Callable[[], int]) -> int:
    """Run a demonstration; returns the exit code."""
    try:
        return demo()
    except (DemoFailed, DevStackError, CommandFailed, AdminError) as error:
        sys.stderr.write(f"demo: {error}\n(make demo-down ends what still runs)\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ndemo: interrupted\n")
        take_down()
        return 130


def take_down() -> None:
    """End the worker and the servers of an earlier demonstration, and remove their folder."""
    folder = _folder()
    if not folder.exists():
        return
    for name in (GATEWAY, WORKER):
        _end_process(folder, name, signal.SIGTERM)
    for name in (_STACK, _SECOND):
        if (folder / name / "state.json").exists():
            Stack.open(folder / name).down(graceful=False)
    shutil.rmtree(folder)
    say("took down the servers and the worker of the demo")


class Stage:
    """The servers of one demonstration, its worker and its migration.

    With `HARDENED=1` all links of Pulsar's servers are encrypted and authenticated, and clients need permissions.

    Args:
        spec: the servers.
        workflow: the workflow's type.
        workflow_id: its id.
        settings: the worker's settings, by the folder of the stack.
        second: the servers of another cluster, where a migration has two.
    """

    def __init__(
        self,
        spec: StackSpec,
        workflow: str,
        workflow_id: str,
        settings: Callable[[Path], dict[str, str]] = lambda _: {},
        second: StackSpec | None = None,
    ) -> None:
        take_down()
        self._begun = time.monotonic()
        self.folder = _folder()
        tools = provision(servers_only=True)
        self._hardening = Hardening.make(tools, self.folder / "secrets") if is_wanted() else None
        self.stack = self._make(spec, _STACK, tools)
        self._second = self._make(second, _SECOND, tools) if second else None
        self.workflow_id = workflow_id
        self._workflow = workflow
        self._settings = settings
        self._failed: list[str] = []
        self._printed = 0

    @property
    def second(self) -> Stack:
        """The servers of the other cluster."""
        assert self._second is not None, "this demonstration has two clusters"
        return self._second

    @property
    def admin_access(self) -> AdminAccess:
        """Access to admin interfaces, as a superuser."""
        return self._hardening.admin_access() if self._hardening else AdminAccess(timeout=30)

    @property
    def client_access(self) -> ClientAccess:
        """Credentials of producers and consumers."""
        return self._hardening.client_access() if self._hardening else ANONYMOUS

    def grant(self, admin: PulsarAdmin, *namespaces: str) -> None:
        """Grant producers and consumers the use of namespaces, where brokers check it."""
        if self._hardening:
            for namespace in namespaces:
                admin.namespaces.grant(namespace, APPLICATION, [NamespaceAction.PRODUCE, NamespaceAction.CONSUME])

    def start_servers(self) -> None:
        """Start all of them, and the worker as soon as Temporal is there."""
        title("Servers")
        os.environ["TEMPORAL_ADDRESS"] = self.stack.temporal_address

        def progress(line: str) -> None:
            say(line)
            if line.startswith("temporal:"):
                self._start_worker()

        self.stack.up(progress)
        if self._second:
            self._second.up(lambda line: say(f"{self.second.state.spec.cluster}: {line}"))
        self._await(WORKER)
        if self._hardening:
            title("Links")
            plain = [name for stack in (self.stack, self._second) if stack for name in plain_ports(stack)]
            self.check(f"no port of Pulsar's servers serves clients without TLS{_listed(plain)}", not plain)
            say("       brokers have tokens and authorization, bookies client certificates with a role,")
            say("       ZooKeeper client certificates and logins; Temporal's development server has no TLS")

    def start_gateway(self) -> str:
        """Start the REST gateway of scalable topics next to the worker; returns its address."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        os.environ.update(self.stack.gateway_settings(port=str(port), public_url=url))
        self._begin(GATEWAY)
        self._await(GATEWAY)
        return url

    def replace_worker(self) -> None:
        """Kill the worker without a word, and start another one."""
        _end_process(self.folder, WORKER, signal.SIGKILL)
        (self.folder / f"{WORKER}.ready").unlink(missing_ok=True)
        self._start_worker()
        self._await(WORKER)

    def rehearse(self, plan: dict[str, Any]) -> None:
        """Start a dry run, and show its plan."""
        title("Dry run: the plan, and nothing is written")
        self.start({**plan, "dry_run": True})
        planned = self.report()
        if planned.outcome is not Outcome.PLANNED or not planned.summary.startswith("ready"):
            raise DemoFailed(f"the dry run says: {planned.summary}")

    def start(self, plan: dict[str, Any]) -> None:
        """Start the migration."""
        self._printed = 0
        words = ["workflow", "start", "--type", self._workflow, "--task-queue", "pulsar-migrate"]
        words += ["--workflow-id", self.workflow_id, "--fail-existing"]
        self.temporal(*words, "--input", json.dumps(plan, separators=(",", ":")))

    def signal(self, name: str, reason: str) -> None:
        """Send a verb."""
        words = ["workflow", "signal", "--workflow-id", self.workflow_id, "--name", name]
        self.temporal(*words, "--input", json.dumps(reason))

    def update(self, name: str, argument: dict[str, Any]) -> None:
        """Send an update."""
        words = ["workflow", "update", "execute", "--workflow-id", self.workflow_id, "--name", name]
        self.temporal(*words, "--input", json.dumps(argument, separators=(",", ":")))

    def follow(self, window: str, details: Callable[[], str], kind: WaitKind = WaitKind.WINDOW) -> None:
        """Print each phase as it ends and each change of progress, until the migration waits in a phase.

        Args:
            window: the phase in which it waits.
            details: returns more text for a phase that has ended.
            kind: what it waits for there.
        """
        begun, last = time.monotonic(), ("", "")
        while True:
            status = self.view().status
            if status is None:
                raise DemoFailed(f"the worker does not answer; see {self.folder / 'worker.log'}")
            for entry in status.history[self._printed :]:
                if entry.ended is None:
                    break
                self._printed += 1
                say(_phase_line(entry, details()))
            # Not each second's estimate: how much is done, and what it waits for.
            step, running = _step(status), _running_line(status)
            if step != last:
                last = step
                if running:
                    say(f"  … {running}")
            if status.phase == window and status.waiting and status.waiting.kind == kind:
                return
            if status.outcome is not Outcome.RUNNING or time.monotonic() - begun > _MIGRATION_LIMIT:
                raise DemoFailed(f"the migration is {status.outcome} in {status.phase}: {'; '.join(status.notes)}")
            time.sleep(_LOOK_EVERY)

    def cut_over(self, window: str, details: Callable[[], str]) -> None:
        """Follow the migration to its hold in a phase, and give the order to cut over."""
        self.follow(window, details, WaitKind.HOLD)
        title("All is copied, and nothing is decided: the migration holds until it has the order to cut over")
        self.signal("proceed", "demo: the plan is as we want it")

    def view(self) -> View:
        """Return the status of the migration."""
        return against_temporal(lambda client: read_view(client, self.workflow_id))

    def report(self) -> Report:
        """Return the report of the migration that has ended."""
        self.temporal("workflow", "result", "--workflow-id", self.workflow_id)
        view = self.view()
        if view.report is None:
            raise DemoFailed(f"the migration failed: {view.failure.message if view.failure else view.execution}")
        return view.report

    def check(self, text: str, held: object) -> None:
        """Print whether a check passed; a failed check fails the demo."""
        say(f"{'ok    ' if held else 'FAILED'} {text}")
        if not held:
            self._failed.append(text)

    def conclude(self, what: str) -> int:
        """Print where to look around, and the verdict; return the exit code."""
        named = quote(self.workflow_id, safe="")
        title("Look around")
        run = against_temporal(lambda client: client.get_workflow_handle(self.workflow_id).describe()).run_id
        workflow = f"{self.stack.temporal_ui}/namespaces/default/workflows/{named}/{run}"
        say(f"Web UI        {workflow}/history")
        say(f"metrics       http://{os.environ['PULSAR_MIGRATE_METRICS_ADDRESS']}/metrics")
        say(f"worker's log  {self.folder / 'worker.log'}")
        say(f"your shell    export TEMPORAL_ADDRESS={self.stack.temporal_address}")
        say(f"              temporal is {self.stack.state.toolchain.temporal}")
        say("take it down  make demo-down")
        verdict = f"FAILED: {len(self._failed)} checks" if self._failed else "verified"
        say(f"\n{verdict}: {what}; {time.monotonic() - self._begun:.0f} s in all")
        return 1 if self._failed else 0

    def temporal(self, *words: str) -> None:
        """Run a `temporal` command in plain sight."""
        say(_shell("temporal", *words))
        command = [str(self.stack.state.toolchain.temporal), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_LIMIT, check=False)
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"{shlex.join(command)} gave no answer in {_ANSWER_LIMIT:.0f} s") from error
        if done.returncode:
            raise DemoFailed(f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        for line in done.stdout.rstrip().splitlines():
            say(f"  {line if len(line) <= _LONGEST_LINE else f'{line[:_LONGEST_LINE]}…'}")

    def _make(self, spec: StackSpec, folder: str, tools: Toolchain) -> Stack:
        wanted = self._hardening.harden(spec) if self._hardening else spec
        return Stack(wanted, self.folder / folder, tools, detach=True)

    def _start_worker(self) -> None:
        os.environ["PULSAR_MIGRATE_METRICS_ADDRESS"] = f"127.0.0.1:{free_port()}"
        os.environ.update(self._settings(self.stack.folder))
        credentials = self._hardening.credentials() if self._hardening else {}
        os.environ.update({f"PULSAR_MIGRATE_{name}": value for name, value in credentials.items()})
        self._begin(WORKER)

    def _begin(self, name: str) -> None:
        """Start one of our processes, which the commands of these names are."""
        command = [sys.executable, "-m", "pulsar_migrate", name, "--ready-file", str(self.folder / f"{name}.ready")]
        child = processes.spawn(command, cwd=_ROOT, log=self.folder / f"{name}.log", detach=True)
        process = processes.inspect(child.pid)
        if process is None:
            raise DemoFailed(f"the {name} ended at once; see {self.folder / f'{name}.log'}")
        ProcessRecord(self.folder / f"{name}.json").write(ProcessId(pid=child.pid, started=process[1]))

    def _await(self, name: str) -> None:
        ready, process = self.folder / f"{name}.ready", ProcessRecord(self.folder / f"{name}.json").read()
        _until(lambda: ready.exists() or not (process and process.alive), _READY_LIMIT)
        if not ready.exists():
            raise DemoFailed(f"the {name} did not get ready; see {self.folder / f'{name}.log'}")
        say(ready.read_text().strip())


def _end_process(folder: Path, name: str, how: signal.Signals) -> None:
    process = ProcessRecord(folder / f"{name}.json").read()
    if process is None:
        return
    process.send(how)
    if not processes.wait_gone(process, None, 25):
        process.send(signal.SIGKILL)


def title(text: str) -> None:
    """Begin a part."""
    say(f"\n== {text} ==")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _phase_line(entry: PhaseEntry, details: str) -> str:
    seconds = entry.seconds(entry.started)
    return f"  {entry.phase:<15} {entry.outcome:<5} {seconds:>6.1f} s   undo: {entry.undo:<10} {details}"


def _step(status: Status) -> tuple[str, str]:
    progress, waiting = status.progress, status.waiting
    return f"{status.phase} {progress.task} {progress.done}" if progress else "", waiting.why if waiting else ""


def _running_line(status: Status) -> str:
    parts = [str(status.progress)] if status.progress else []
    parts += [f"waits for {status.waiting.why}"] if status.waiting else []
    return f"{status.phase}: {'; '.join(parts)}" if parts else ""


def _shell(*words: str) -> str:
    """Return a command as one types it, folded if it is long; options stay next to their values."""
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


def _listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def _until(holds: Callable[[], bool], limit: float) -> None:
    deadline = time.monotonic() + limit
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)


def _folder() -> Path:
    return cache_folder() / "demo"
