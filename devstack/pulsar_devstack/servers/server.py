"""One server of a stack: its process, its verbs, and the start of several in the order of their needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.servers import configs, plans, processes
from pulsar_devstack.servers.cache import Progress
from pulsar_devstack.servers.processes import Runner
from pulsar_devstack.servers.state import StackFolder

NewRunner = Callable[[str, Path, Path], Runner]
"""Makes what starts and ends a server's process, from its name, its folder and its log."""

_POLL = 0.05
_TAIL = 30
_STACKS_WITHIN = 10.0
_MOST_LINES = 10_000
# Set-up steps, with the field of the stack's state that shows whether they are done.
_RECORDED = {
    plans.SETUP: "set_up",
    plans.LEDGERS_SETUP: "ledgers_set_up",
    plans.SECOND_SETUP: "second_set_up",
}


class ServerStatus(BaseModel):
    """Current status of a server.

    Attributes:
        state: `ready` answers its probe, `starting` runs without an answer, `down` does not run.
        pid: its process, when it runs.
        ports: role to port on 127.0.0.1.
        log: where it writes.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    state: Literal["ready", "starting", "paused", "down"]
    pid: int | None
    ports: dict[str, int]
    log: Path


class Server:
    """One server of a stack; verbs return when what they ask for has happened.

    Args:
        name: its name in the stack, or a set-up step's.
        stack: the folder of the stack, of which a part is the server's.
        new_runner: decides what kind of process it is.
    """

    def __init__(self, name: str, stack: StackFolder, new_runner: NewRunner) -> None:
        self.name = name
        self.kind = name if name in _RECORDED else plans.kind_of(name)
        self.folder = stack.path / name
        self.log = self.folder / "server.log"
        self._stack, self._new_runner = stack, new_runner
        self._runner = new_runner(name, self.folder, self.log)

    @property
    def ports(self) -> dict[str, int]:
        """Role to port on 127.0.0.1."""
        return {role: self._stack.state.ports[f"{self.name}.{role}"] for role in plans.roles_of(self.name)}

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{configs.LOOPBACK}:{next(iter(self.ports.values()))}"

    @property
    def pid(self) -> int | None:
        """Process id while the server runs or is paused."""
        return self._runner.pid

    @property
    def alive(self) -> bool:
        """True if its process runs or is paused, also if another program started it."""
        return self.pid is not None

    @property
    def ready(self) -> bool:
        """True if it answers its probe."""
        probe = self.plan().ready
        return probe is not None and self.alive and probe()

    def plan(self) -> plans.ServerPlan:
        """Return the plan for its next start."""
        return plans.plan(self.name, self._stack.state, self.folder)

    def start(self) -> None:
        """Start it on its data and wait until it is ready; does nothing when it runs.

        Raises:
            ServerFailed: it ended or took too long.
        """
        if not self.alive:
            start_all([self])

    def stop(self) -> None:
        """Ask it to end (SIGTERM), and kill it when it does not."""
        if not self._runner.stop(self.plan().stop_limit):
            self._runner.kill()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._runner.kill()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same data and ports.

        Raises:
            ServerFailed: it ended or took too long.
        """
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open, nothing answers.

        Raises:
            ServerFailed: it does not run.
        """
        self._require_running()
        self._runner.pause()

    def resume(self) -> None:
        """Continue a frozen server (SIGCONT).

        Raises:
            ServerFailed: it does not run.
        """
        self._require_running()
        self._runner.resume()

    def tail(self, lines: int = 100) -> list[str]:
        """Return the last lines of its log."""
        return processes.tail(self.log, lines)

    def status(self) -> ServerStatus:
        """Return its current status; send its probe if it runs."""
        pid = self.pid
        state: Literal["ready", "starting", "paused", "down"] = "down"
        if pid is not None:
            state = "paused" if self._runner.paused else "ready" if self.ready else "starting"
        return ServerStatus(name=self.name, state=state, pid=pid, ports=self.ports, log=self.log)

    def launch(self) -> Callable[[], bool]:
        """Start the process; return a probe of its readiness, which raises `ServerFailed` if the process ended."""
        plan = self.plan()
        for path, text in plan.files.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        runner = self._runner
        runner.start(plan)
        deadline = time.monotonic() + plan.start_limit

        def is_ready() -> bool:
            code = runner.exit_code
            if code is None and plan.ready is not None and plan.ready():
                return True
            if code == 0 and plan.ready is None:
                return True
            if code is not None:
                raise ServerFailed(self.name, f"ended with {code} during its start", code, self.tail(_TAIL))
            if time.monotonic() > deadline:
                end = self.tail(_TAIL)
                raise ServerFailed(
                    self.name, f"was not ready after {plan.start_limit:.0f} s", None, [*end, *self._main_stack()]
                )
            return False

        return is_ready

    def _main_stack(self) -> list[str]:
        """Return where the main thread of a Java server is, which tells why the server is late; empty if unknown."""
        self._runner.quit()
        deadline = time.monotonic() + _STACKS_WITHIN
        while time.monotonic() < deadline:
            time.sleep(_POLL)
            lines = self.tail(_MOST_LINES)
            begins = next((number for number, line in enumerate(lines) if line.startswith('"main" ')), len(lines))
            if "" in lines[begins:]:
                return lines[begins : lines.index("", begins)]
        return []

    def setup_steps(self) -> dict[str, Server]:
        """Return the names of the set-up steps that its stack needs and has not done."""
        state = self._stack.state
        needed = {
            plans.SETUP: state.spec.bookies,
            plans.LEDGERS_SETUP: state.spec.ledgers_apart,
            plans.SECOND_SETUP: state.spec.second_bookies,
        }
        names = [name for name, count in needed.items() if count and not getattr(state, _RECORDED[name])]
        return {name: Server(name, self._stack, self._new_runner) for name in names}

    def record_done(self) -> None:
        """Record in the stack's folder that this set-up step is done."""
        self._stack.update(**{_RECORDED[self.name]: True})

    def _require_running(self) -> None:
        if not self.alive:
            raise ServerFailed(self.name, "does not run", None, self.tail(_TAIL))


def silent(_line: str) -> None:
    """Ignore progress."""


def start_all(chosen: Iterable[Server], progress: Progress = silent) -> None:
    """Start servers of one stack, each as soon as those that it needs are ready, and wait for all of them.

    Raises:
        ServerFailed: one ended or took too long; the others are left as they are.
    """
    waiting = {server.name: server for server in chosen}
    begin = time.monotonic()
    steps = next(iter(waiting.values())).setup_steps() if waiting else {}
    waiting.update(steps)
    starting: dict[str, Callable[[], bool]] = {}
    try:
        while waiting or starting:
            for name, server in list(waiting.items()):
                if not {*waiting, *starting}.intersection(server.plan().after):
                    starting[name] = waiting.pop(name).launch()
            for name in [name for name, is_ready in starting.items() if is_ready()]:
                del starting[name]
                progress(f"{name}: ready after {time.monotonic() - begin:.1f} s")
                if name in steps:
                    steps[name].record_done()
            time.sleep(_POLL)
    finally:
        for step in steps.values():
            step.kill()
