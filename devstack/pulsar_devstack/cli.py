"""Commands for people: a stack of real servers on this machine, kept in one folder."""

from __future__ import annotations

import enum
import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from pulsar_devstack.errors import DevStackError
from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.provision import print_progress, provision
from pulsar_devstack.servers.server import Server, ServerStatus
from pulsar_devstack.servers.spec import StackSpec
from pulsar_devstack.servers.stack import Stack

app = typer.Typer(
    name="dev",
    help="Real servers on this machine: ZooKeeper, Oxia, bookies, brokers, Temporal.",
    add_completion=False,
    rich_markup_mode=None,
)

_LOOK_EVERY = 1.0


class Output(enum.StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


def default_folder() -> Path:
    """Return the default folder of the stack, next to the provisioned programs."""
    return cache_folder() / "stack"


Folder = Annotated[Path, typer.Option("--folder", default_factory=default_folder, help="Where the stack lies.")]
Name = Annotated[str, typer.Argument(help="A server, for example broker-1.")]


@app.command("provision")
def provision_command(
    *, verify: Annotated[bool, typer.Option("--verify", help="Compare all sha256 sums first.")] = False
) -> None:
    """Get or build everything that the servers need; a second run only checks."""
    with _errors_as_sentences():
        toolchain = provision(verify=verify)
    for name in ("pulsar", "java", "jars", "temporal", "oxia", "test_server"):
        typer.echo(f"{name:12} {getattr(toolchain, name)}")


@app.command()
def up(
    folder: Folder,
    *,
    zookeepers: Annotated[int, typer.Option(help="0, 1 or 3.")] = 1,
    second_zookeepers: Annotated[int, typer.Option(help="A ZooKeeper of its own, as a target: 0 or 1.")] = 0,
    oxias: Annotated[int, typer.Option(help="Oxia servers, each a store of its own.")] = 1,
    oxia_shards: Annotated[int, typer.Option(help="Shards of each Oxia.")] = 1,
    bookies: Annotated[int, typer.Option()] = 1,
    second_bookies: Annotated[int, typer.Option(help="Bookies of a second cluster on the same ZooKeeper.")] = 0,
    brokers: Annotated[int, typer.Option()] = 1,
    temporal: Annotated[bool, typer.Option(help="Temporal's dev server with the Web UI.")] = True,
    metadata: Annotated[str, typer.Option(help="The store of brokers and bookies: zk or oxia.")] = "zk",
    zk_chroot: Annotated[str, typer.Option(help="The node under which Pulsar lives, for example /pulsar.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Leave the servers running and return.")] = False,
) -> None:
    """Start a stack; ends with Ctrl-C unless detached. Data are kept for the next start in the same folder."""
    with _errors_as_sentences():
        spec = StackSpec.model_validate(
            {
                "zookeepers": zookeepers,
                "second_zookeepers": second_zookeepers,
                "oxias": oxias,
                "oxia_shards": oxia_shards,
                "bookies": bookies,
                "second_bookies": second_bookies,
                "brokers": brokers,
                "temporal": temporal,
                "metadata": metadata,
                "zk_chroot": zk_chroot,
            }
        )
        stack = Stack(spec, folder, provision(servers_only=True), detach=detach)
        _show_addresses(stack)
        stack.up(print_progress)
        _print_rows(stack.status())
        if not detach:
            _stay(stack)


@app.command()
def down(
    folder: Folder, *, wipe: Annotated[bool, typer.Option("--wipe", help="Remove data and logs as well.")] = False
) -> None:
    """Stop all servers."""
    with _errors_as_sentences():
        stack = Stack.open(folder)
        stack.down()
    if wipe:
        shutil.rmtree(stack.folder)


@app.command()
def status(folder: Folder, output: Annotated[Output, typer.Option("--output", "-o")] = Output.TEXT) -> None:
    """Show every server; the exit code is 1 when one is not ready."""
    with _errors_as_sentences():
        rows = Stack.open(folder).status()
    if output is Output.JSON:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in rows], indent=1))
    else:
        _print_rows(rows)
    if any(row.state != "ready" for row in rows):
        raise typer.Exit(1)


@app.command()
def logs(name: Name, folder: Folder, lines: Annotated[int, typer.Option("--lines", "-n")] = 100) -> None:
    """Print the end of a server's log."""
    with _errors_as_sentences():
        for line in Stack.open(folder).logs(name, lines):
            typer.echo(line)


@app.command()
def kill(name: Name, folder: Folder) -> None:
    """End a server as a crash would (SIGKILL)."""
    _on_server(folder, name, Server.kill)


@app.command()
def pause(name: Name, folder: Folder) -> None:
    """Freeze a server (SIGSTOP): connections stay open, nothing answers."""
    _on_server(folder, name, Server.pause)


@app.command()
def resume(name: Name, folder: Folder) -> None:
    """Continue a frozen server."""
    _on_server(folder, name, Server.resume)


@app.command()
def restart(name: Name, folder: Folder) -> None:
    """Stop a server if it runs, and start it on the same data and ports."""
    _on_server(folder, name, Server.restart)


@app.command("stop-brokers")
def stop_brokers(folder: Folder) -> None:
    """Stop all brokers; harmless where none runs."""
    _on_brokers(folder, Server.stop)


@app.command("start-brokers")
def start_brokers(
    folder: Folder,
    *,
    bookkeeper_uri: Annotated[
        str,
        typer.Option(envvar="BOOKKEEPER_METADATA_SERVICE_URI", help="Put them on this bookie cluster (and keep it)."),
    ] = "",
) -> None:
    """Start all brokers that do not run."""
    with _errors_as_sentences():
        stack = Stack.open(folder)
        if bookkeeper_uri:
            stack.use_bookies(bookkeeper_uri)
    _on_brokers(folder, Server.start)


def _on_brokers(folder: Path, verb: Callable[[Server], None]) -> None:
    with _errors_as_sentences():
        stack = Stack.open(folder)
        brokers = [server for server in stack if server.kind == "broker"]
        with ThreadPoolExecutor(max(1, len(brokers))) as pool:
            list(pool.map(verb, brokers))
        _print_rows([broker.status() for broker in brokers])


def _on_server(folder: Path, name: str, verb: Callable[[Server], None]) -> None:
    with _errors_as_sentences():
        server = Stack.open(folder)[name]
        verb(server)
        _print_rows([server.status()])


def _show_addresses(stack: Stack) -> None:
    spec = stack.state.spec
    lines = [("folder", str(stack.folder))]
    lines += [("ZooKeeper", stack.zk_url)] if spec.zookeepers else []
    lines += [("second ZooKeeper", stack.second_zk_url)] if spec.second_zookeepers else []
    lines += [("Oxia", url) for url in stack.oxia_urls]
    lines += [("bookies", stack.bookkeeper_uri)] if spec.bookies else []
    lines += [("second bookies", stack.second_bookkeeper_uri)] if spec.second_bookies else []
    lines += [("Pulsar", stack.broker_url), ("Pulsar admin", " ".join(stack.admin_urls))] if spec.brokers else []
    lines += [("Temporal", stack.temporal_address), ("Web UI", stack.temporal_ui)] if spec.temporal else []
    for name, value in lines:
        typer.echo(f"{name:17} {value}")


def _print_rows(rows: list[ServerStatus]) -> None:
    for row in rows:
        ports = " ".join(f"{role}={port}" for role, port in row.ports.items())
        typer.echo(f"{row.name:19} {row.state:9} {f'pid {row.pid}' if row.pid else '-':12} {ports}")


def _stay(stack: Stack) -> None:
    ended = threading.Event()
    for what in (signal.SIGINT, signal.SIGTERM):
        signal.signal(what, lambda _number, _frame: ended.set())
    typer.echo("Ctrl-C stops all of them")
    shown = {row.name: row.state for row in stack.status()}
    try:
        while not ended.wait(_LOOK_EVERY):
            rows = stack.status()
            _print_rows([row for row in rows if shown.get(row.name) != row.state])
            shown = {row.name: row.state for row in rows}
    finally:
        typer.echo("stopping")
        stack.down()


@contextmanager
def _errors_as_sentences() -> Generator[None]:
    try:
        yield
    except (DevStackError, ValidationError) as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(1) from error
