"""State that a stack's folder records, so that it survives a stop and is visible in another shell."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pulsar_devstack.errors import StackConflict
from pulsar_devstack.servers.spec import Settings, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain

STATE_FILE = "state.json"


class StackState(BaseModel):
    """The files of a stack's folder that belong to the dev stack.

    Attributes:
        spec: the servers.
        toolchain: the programs that they run on.
        ports: `<server>.<role>` to port on 127.0.0.1; kept over restarts.
        first_port: the start of the block of ports.
        settings: lines of one server's configuration that win over all others.
        set_up: whether the Pulsar cluster's metadata has been written.
        second_set_up: whether the root of the second BookKeeper cluster has been written.
        ledgers_set_up: whether the root of the first one has been written to a store of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: StackSpec
    toolchain: Toolchain
    ports: dict[str, int]
    first_port: int
    settings: dict[str, Settings] = {}
    set_up: bool = False
    second_set_up: bool = False
    ledgers_set_up: bool = False

    def zookeeper_url(self) -> str:
        """Return `zk:host:port[,host:port...][/chroot]` of the ensemble."""
        return f"zk:{','.join(self._zookeeper_hosts())}{self.spec.zk_chroot}"

    def oxia_url(self, number: int = 1) -> str:
        """Return `oxia://host:port/default` of one Oxia."""
        return f"oxia://127.0.0.1:{self.ports[f'oxia-{number}.public']}/default"

    def second_bookkeeper_uri(self) -> str:
        """Return `zk+hierarchical://host:port[;host:port...]/second-ledgers` of the second BookKeeper cluster."""
        # Next to the chroot: the root's parent must be there before the root.
        return f"zk+hierarchical://{';'.join(self._zookeeper_hosts())}/second-ledgers"

    def metadata_url(self) -> str:
        """Return the store that brokers and bookies start with, unless `settings` name another."""
        return self.zookeeper_url() if self.spec.metadata == "zk" else self.oxia_url()

    def ledgers_url(self) -> str:
        """Return the store in which bookies are started unless `settings` say otherwise."""
        if self.spec.ledgers_apart:
            return f"zk:127.0.0.1:{self.ports['second-zookeeper-1.client']}"
        return self.metadata_url()

    def _zookeeper_hosts(self) -> list[str]:
        return [f"127.0.0.1:{self.ports[f'zookeeper-{n}.client']}" for n in range(1, self.spec.zookeepers + 1)]


class StackFolder:
    """The folder of a stack, and the state in it.

    Attributes:
        path: the folder; it need not exist before `save`.
        state: what this process last read or wrote.
    """

    def __init__(self, path: Path, state: StackState) -> None:
        self.path, self.state = path, state

    @staticmethod
    def read(path: Path) -> StackState | None:
        """Return the recorded state; None if the folder has no stack.

        Raises:
            StackConflict: its state cannot be read.
        """
        try:
            return StackState.model_validate_json((path / STATE_FILE).read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise StackConflict(f"{path / STATE_FILE} cannot be read ({error}); remove the folder") from error

    def update(self, **changes: object) -> None:
        """Change fields of the state permanently."""
        # Another shell may have changed the rest.
        self.state = (self.read(self.path) or self.state).model_copy(update=changes)
        self.save()

    def save(self) -> None:
        """Write the state, whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = self.path / f"{STATE_FILE}.new"
        fresh.write_text(self.state.model_dump_json(indent=1))
        fresh.replace(self.path / STATE_FILE)
