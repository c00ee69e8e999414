"""A stack's description with its refusals, and the state in a stack's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from pulsar_devstack.errors import NotInStack
from pulsar_devstack.servers import configs, plans
from pulsar_devstack.servers.spec import OxiaSecurity, PulsarSecurity, StackSpec, ZooKeeperSecurity
from pulsar_devstack.servers.state import StackState
from pulsar_devstack.servers.toolchain import Toolchain

_KEY, _CERTIFICATE = (
    f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n" for kind in ("PRIVATE KEY", "CERTIFICATE")
)


def state_of(spec: StackSpec) -> StackState:
    """Return a stack on made-up ports."""
    program = Path("/programs/any")
    toolchain = Toolchain(
        pulsar="5.0.1", java=program, java_version=21, jars=program, test_server=program, temporal=program, oxia=program
    )
    keys = [f"{name}.{role}" for name in spec.names for role in plans.roles_of(name)]
    return StackState(
        spec=spec, toolchain=toolchain, first_port=20_000, ports={key: 20_000 + n for n, key in enumerate(keys)}
    )


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"brokers": 1}, "set bookies to 1"),
        ({"bookies": 1}, "set zookeepers to 1"),
        ({"bookies": 1, "zookeepers": 1, "metadata": "oxia"}, "set oxias to 1"),
        ({"zk_chroot": "/a"}, "set zookeepers to 1"),
        ({"second_bookies": 1, "oxias": 1}, "set zookeepers to 1"),
        ({"zookeepers": 1, "bookies": 1, "ledgers_apart": True}, "set second_zookeepers and bookies to 1"),
        ({"zookeepers": 2}, "zookeepers"),
        ({"zookeepers": 1, "zk_chroot": "a/"}, "zk_chroot"),
        ({"zookeeper": 1}, "zookeeper"),
    ],
)
def test_a_spec_that_cannot_start_is_refused(fields: dict[str, object], cure: str) -> None:
    """A spec whose servers lack another is refused, and the message names the field to change."""
    with pytest.raises(ValidationError, match=cure):
        StackSpec.model_validate(fields)


def test_urls_name_every_host_once() -> None:
    """The URL of an ensemble has its hosts by commas and the chroot at the end; BookKeeper's has semicolons."""
    url = state_of(StackSpec(zookeepers=3, zk_chroot="/a/b")).zookeeper_url()
    assert url == "zk:127.0.0.1:20000,127.0.0.1:20003,127.0.0.1:20006/a/b"
    assert configs.bookie_metadata(url) == {
        "metadataServiceUri": "metadata-store:zk:127.0.0.1:20000;127.0.0.1:20003;127.0.0.1:20006/a/b"
    }


def test_the_second_cluster_has_a_root_of_its_own() -> None:
    """Bookies of the second cluster name its root, which lies next to the chroot; brokers name the first."""
    state = state_of(StackSpec(zookeepers=3, zk_chroot="/a", bookies=1, second_bookies=1, brokers=1))

    def line(name: str, file: str, key: str) -> str:
        lines = plans.plan(name, state, Path("/stack") / name).files[file].splitlines()
        return next(line for line in lines if line.startswith(f"{key}="))

    hosts = "127.0.0.1:20000;127.0.0.1:20003;127.0.0.1:20006"
    second = f"metadataServiceUri=zk+hierarchical://{hosts}/second-ledgers"
    assert line("second-bookie-1", "bookkeeper.conf", "metadataServiceUri") == second
    assert line(plans.SECOND_SETUP, "bookkeeper.conf", "metadataServiceUri") == second
    first = f"metadata-store:zk:{hosts}/a?batchingEnabled=false"
    assert line("bookie-1", "bookkeeper.conf", "metadataServiceUri") == f"metadataServiceUri={first}"
    assert line("broker-1", "broker.conf", "bookkeeperMetadataServiceUri") == f"bookkeeperMetadataServiceUri={first}"


def test_ledgers_have_a_store_of_their_own() -> None:
    """Bookies, their set-up and the brokers' clients name the second ZooKeeper; brokers keep theirs in the first."""
    state = state_of(StackSpec(zookeepers=1, second_zookeepers=1, bookies=1, brokers=1, ledgers_apart=True))
    ledgers = f"metadata-store:{state.ledgers_url()}"
    assert state.ledgers_url() != state.metadata_url()

    def lines(name: str, file: str) -> list[str]:
        return plans.plan(name, state, Path("/stack") / name).files[file].splitlines()

    assert f"metadataServiceUri={ledgers}" in lines(plans.LEDGERS_SETUP, "bookkeeper.conf")
    ledgers = f"{ledgers}?batchingEnabled=false"
    assert f"metadataServiceUri={ledgers}" in lines("bookie-1", "bookkeeper.conf")
    assert {f"metadataStoreUrl={state.metadata_url()}", f"bookkeeperMetadataServiceUri={ledgers}"} <= set(
        lines("broker-1", "broker.conf")
    )
    assert plans.LEDGERS_SETUP in plans.plan("bookie-1", state, Path("/stack/bookie-1")).after


def test_parameters_of_a_store_are_for_releases_that_know_them() -> None:
    """Older releases would take them for a part of the path."""
    state = state_of(StackSpec(zookeepers=1, bookies=1))
    older = state.model_copy(update={"toolchain": replace(state.toolchain, pulsar="4.0.8")})
    addresses = [plans.plan("bookie-1", each, Path("/stack")).files["bookkeeper.conf"] for each in (state, older)]
    assert ["?batchingEnabled=false\n" in text for text in addresses] == [True, False]
    own = {"metadataServiceUri": "metadata-store:zk:a:1?batchingEnabled=true"}
    assert configs.without_batches(own) == own


@pytest.mark.parametrize(("first", "second", "replicas"), [(1, 0, 1), (2, 0, 2), (3, 0, 2), (2, 1, 1), (2, 2, 2)])
def test_messages_have_two_copies_where_they_can(first: int, second: int, replicas: int) -> None:
    """Brokers write to two bookies when whichever cluster they use has two, and to one otherwise."""
    state = state_of(StackSpec(zookeepers=1, bookies=first, second_bookies=second, brokers=1))
    lines = plans.plan("broker-1", state, Path("/stack")).files["broker.conf"].splitlines()
    assert set(configs.render(configs.broker_quorum(replicas)).splitlines()) <= set(lines)


def test_one_servers_settings_win_over_those_of_all() -> None:
    """Lines of one server win over the spec's, and those over the stack's own."""
    spec = StackSpec(zookeepers=1, bookies=1, brokers=2, broker_settings={"numIOThreads": "3", "clusterName": "x"})
    state = state_of(spec).model_copy(update={"settings": {"broker-2": {"numIOThreads": "4"}}})

    def config(name: str) -> list[str]:
        return plans.plan(name, state, Path("/stack") / name).files["broker.conf"].splitlines()

    assert {"numIOThreads=3", "clusterName=x"} <= set(config("broker-1"))
    assert "numIOThreads=4" in config("broker-2")
    assert not [line for line in config("broker-1") if line == "numIOThreads=2"]


def test_state_survives_its_file() -> None:
    """A state that is written to a stack's folder reads back equal."""
    state = state_of(StackSpec(zookeepers=1, bookies=2, second_bookies=2, brokers=1, oxias=2, temporal=True))
    assert StackState.model_validate_json(state.model_dump_json()) == state


@pytest.mark.parametrize("name", ["kafka-1", "", "broker1"])
def test_unknown_servers_are_named(name: str) -> None:
    """A name of no kind is refused with the list of kinds."""
    with pytest.raises(NotInStack, match="second-zookeeper"):
        plans.kind_of(name)


def test_a_broker_starts_when_its_bookies_are_ready() -> None:
    """A broker that starts with its bookies may not see them for long, so it waits for those of both clusters."""
    state = state_of(StackSpec(zookeepers=1, bookies=2, second_bookies=1, brokers=2))
    after = {"zookeeper-1", "bookie-1", "bookie-2", "second-bookie-1", plans.SETUP}
    assert set(plans.plan("broker-2", state, Path("/stack")).after) == after


def test_a_secure_zookeeper_has_no_plain_port(tmp_path: Path) -> None:
    """Servers with security listen with TLS alone and know all users; the stack's own clients log in as the first."""
    files = {name: tmp_path / name for name in ("authorities", "server", "client")}
    for name, file in files.items():
        file.write_text(name)
    security = ZooKeeperSecurity(**files, users={"pulsar": "one", "migrate": "two"}, login_required=True)
    state = state_of(StackSpec(zookeepers=1, bookies=1, brokers=1, zookeeper_security=security))
    server = plans.plan("zookeeper-1", state, tmp_path)
    lines = server.files["zoo.cfg"].splitlines()
    assert f"secureClientPort={state.ports['zookeeper-1.client']}" in lines
    assert not [line for line in lines if line.startswith("clientPort")]
    assert "enforce.auth.schemes=sasl" in lines
    assert 'user_pulsar="one" user_migrate="two"' in server.files["jaas.conf"]
    for name in ("bookie-1", "broker-1", plans.SETUP):
        client = plans.plan(name, state, tmp_path)
        assert "-Dzookeeper.client.secure=true" in client.command
        assert 'username="pulsar" password="one"' in client.files["jaas.conf"]
        assert client.files["tls/client.pem"] == "client"


def test_secure_brokers_and_bookies_have_no_plain_port(tmp_path: Path) -> None:
    """Brokers listen with TLS alone and require tokens, and bookies require a role."""
    pems = {"authorities": _CERTIFICATE, "server": _KEY + _CERTIFICATE, "client": _KEY + _CERTIFICATE}
    for name, pem in {**pems, "token_key": "key"}.items():
        (tmp_path / name).write_text(pem)
    files = {name: tmp_path / name for name in (*pems, "token_key")}
    security = PulsarSecurity(**files, broker_role="brokers", superusers=("root",), bookie_role="storage")
    state = state_of(StackSpec(zookeepers=1, bookies=1, brokers=1, pulsar_security=security))
    broker, bookie = (plans.plan(name, state, tmp_path) for name in ("broker-1", "bookie-1"))
    lines = broker.files["broker.conf"].splitlines()
    assert {"brokerServicePort=", "webServicePort=", "superUserRoles=brokers,root"} <= set(lines)
    assert f"webServicePortTls={state.ports['broker-1.http']}" in lines
    assert "authorizationEnabled=true" in lines
    assert {"httpServerEnabled=false", "authorizedRoles=storage"} <= set(bookie.files["bookkeeper.conf"].splitlines())
    for server in (broker, bookie):
        assert (server.files["tls/server.key"], server.files["tls/server.crt"]) == (_KEY, _CERTIFICATE)


def test_a_required_login_needs_a_user(tmp_path: Path) -> None:
    """A required login without users is refused."""
    with pytest.raises(ValidationError, match="set users"):
        ZooKeeperSecurity(authorities=tmp_path, server=tmp_path, client=tmp_path, login_required=True)


def test_a_secure_oxia_has_its_files_and_requires_them(tmp_path: Path) -> None:
    """Servers with security get certificate, authorities and keys of tokens, and refuse clients without."""
    files = {name: tmp_path / name for name in ("authorities", "server", "token_keys")}
    for name, file in files.items():
        file.write_text(name)
    security = OxiaSecurity(**files, client_certificates=True)
    server = plans.plan("oxia-1", state_of(StackSpec(oxias=1, oxia_security=security)), tmp_path)
    assert sorted(server.files.values()) == sorted(files)
    assert {"--tls-cert-file=tls/server.pem", "--tls-client-auth=true", "--auth-provider-name=oidc"} <= {
        *server.command
    }
    plain = plans.plan("oxia-1", state_of(StackSpec(oxias=1)), tmp_path)
    assert not plain.files
    assert not [option for option in plain.command if "tls" in option or "auth" in option]
