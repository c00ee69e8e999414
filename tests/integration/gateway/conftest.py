"""Fixtures of the gateway's tests: two brokers, a gateway with TLS and tokens, and its clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import httpx
import pytest

from pulsar_devstack.servers.ports import PortBlock
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.certificates import Authority
from tests.support.clusters import admin
from tests.support.gateway.processes import GatewayProcess
from tests.support.gateway.tokens import token_entry, write
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import SharedStack

__all__ = ["admin"]

HOST = "127.0.0.1"
ROOT, CONSUMER = "token-of-root", "token-of-a-consumer"

OpenGateway = Callable[..., GatewayProcess]


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture(scope="module")
def authority(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signs the gateway's certificate."""
    return Authority(toolchain, tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a token of each role."""
    entries = (
        token_entry(ROOT, "admin", name="root"),
        token_entry(CONSUMER, "client", "public/default", name="consumer"),
    )
    return write(tmp_path_factory.mktemp("tokens") / "tokens", *entries)


@pytest.fixture(scope="module")
def gateway(
    environment: Environment,
    stack: Stack,
    authority: Authority,
    tokens: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[GatewayProcess]:
    """A gateway with TLS and tokens."""
    identity = authority.identity("gateway", HOST)
    with GatewayProcess(
        environment.stack.temporal_address,
        stack,
        tmp_path_factory.mktemp("gateway"),
        tls_certificate=str(identity.cert_file),
        tls_key=str(identity.key_file),
        tokens_file=str(tokens),
    ) as process:
        yield process


@pytest.fixture
def open_gateway(environment: Environment, stack: Stack, tmp_path: Path) -> Iterator[OpenGateway]:
    """Opens gateways for one test, without TLS and tokens."""
    opened: list[GatewayProcess] = []

    def open_(**settings: str) -> GatewayProcess:
        folder = tmp_path / str(len(opened))
        folder.mkdir()
        process = GatewayProcess(environment.stack.temporal_address, stack, folder, **settings)
        opened.append(process.__enter__())
        return process

    yield open_
    for process in opened:
        process.kill()


@pytest.fixture
def own_port() -> Generator[int]:
    """A port that no other program takes before a gateway listens there."""
    block = PortBlock()
    yield block.take(set())
    block.release()


@pytest.fixture
def root(gateway: GatewayProcess, authority: Authority) -> Generator[httpx.Client]:
    """An operator, with the token of one."""
    with operator(gateway.url, str(authority.cert_file), ROOT) as client:
        yield client


def operator(url: str, authorities: str = "", token: str = "") -> httpx.Client:
    """Return an HTTP client of a gateway."""
    context = ssl.create_default_context(cafile=authorities or None)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=f"{url}/admin/v2", verify=context, headers=headers, timeout=90)
