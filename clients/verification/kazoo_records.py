"""Records of a ZooKeeper, read with kazoo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kazoo import exceptions

from clients.verification.records import PATHS_AT_ONCE, Answer, StoredRecord, Withheld
from clients.zookeeper.coordination import CoordinationReader

# Containers and nodes with a time to live show their kind in the sign of the owner.
_NO_SESSION = 1 << 63
_SERVERS_OWN = "/zookeeper"


class KazooRecords(CoordinationReader):
    """Reads a ZooKeeper and cannot write; see `RecordReader`."""

    @property
    def layout(self) -> str:
        """Nothing: paths have one order."""
        return ""

    def paths(self, scope: str, after: str) -> Iterator[list[str]]:
        """Yield the paths beneath a path: all children of a node, then what is beneath each of them."""
        done = after.removeprefix(scope).split("/")[1:] if after else []
        if scope and not after:
            yield [scope]
        (names,) = self._children([scope or "/"])
        yield from self._beneath(scope, names, done)

    def read(self, paths: Sequence[str]) -> list[Answer]:
        """Return the records of these paths, in their order; None for keys of Oxia that are not paths of nodes."""
        nodes = {path: None for path in paths if _is_node(path)}
        answers = {path: self._record(path, answer) for path, answer in self._ask(self._client.get_async, [*nodes])}
        return [answers.get(path) for path in paths]

    def _beneath(self, parent: str, names: Sequence[str], done: Sequence[str]) -> Iterator[list[str]]:
        """Yield the paths beneath a node, without those up to the path `done` beneath it."""
        # Of a list that was yielded, the last path is known. What is beneath its records was not.
        last = done[0] if done else ""
        fresh = [name for name in names if name > last] if len(done) == 1 else [] if done else names
        open_ones = [name for name in names if name >= last] if len(done) > 1 else names
        below: dict[str, Sequence[str]] = {}
        fresh_names = frozenset(fresh)
        for first in range(0, len(open_ones), PATHS_AT_ONCE):
            chunk = open_ones[first : first + PATHS_AT_ONCE]
            paths = [f"{parent}/{name}" for name in chunk]
            lists = self._children(paths)
            below |= {name: children for name, children in zip(chunk, lists, strict=True) if children}
            if wanted := [f"{parent}/{name}" for name in chunk if name in fresh_names]:
                yield wanted
        for name, children in below.items():
            rest = done[1:] if len(done) > 1 and name == last else ()
            yield from self._beneath(f"{parent}/{name}", children, rest)

    def _children(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of each node, sorted; none for a node that does not exist."""
        lists: list[list[str]] = []
        for path, answer in self._ask(self._client.get_children_async, paths):
            names = [] if isinstance(answer, Exception) else sorted(answer)
            own = not self.url.root and path == "/"
            lists.append([name for name in names if not (own and name == _SERVERS_OWN[1:])])
        return lists

    def _ask(self, start: Any, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield each path with its answer; a refusal, or the absence of the node, is the answer."""
        with self._errors("reading", paths[0] if paths else ""):
            # Each client reads from one server, which may lag behind a write that was just acknowledged elsewhere.
            self._wait(self._client.sync_async(self._absolute("/")))
            for first in range(0, len(paths), PATHS_AT_ONCE):
                chunk = paths[first : first + PATHS_AT_ONCE]
                for path, pending in [(path, start(self._absolute(path))) for path in chunk]:
                    try:
                        yield path, self._wait(pending)
                    except (exceptions.NoNodeError, exceptions.NoAuthError) as error:
                        yield path, error

    def _record(self, path: str, answer: Any) -> Answer:
        if isinstance(answer, exceptions.NoNodeError):
            return None
        if isinstance(answer, Exception):
            return Withheld(f"{self.url} refuses to read {path}: its ACL denies it")
        value, stat = answer
        owner = stat.ephemeralOwner & (2 * _NO_SESSION - 1)
        return StoredRecord(
            value=value or b"",
            version=stat.version,
            counter=(stat.cversion + stat.numChildren) // 2,
            is_ephemeral=0 < owner < _NO_SESSION,
            created_ms=stat.ctime,
            changed_ms=stat.mtime,
        )


def _is_node(path: str) -> bool:
    """Return whether ZooKeeper may have a node of this path; for other keys kazoo fails, or reads another node."""
    top, *names = path.split("/")
    is_text = path.encode(errors="replace").decode() == path
    return not top and is_text and not {"", ".", ".."}.intersection(names)
