"""Two real clusters that ask for tokens and speak TLS: each has an authority, a superuser and tokens of its own.

The clients have one token, which both clusters accept: a client is sent on with the credentials that it has.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from activities.pulsar.registrations import brokers
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.admin.client import PulsarAdmin
from clients.stores import Access, open_reader
from clients.tls import Tls
from models.blue_green.input import BlueGreenInput
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import pulsar
from tests.support.blue_green.environment import KEPT_TOPICS
from tests.support.clients.certificates import Authority
from tests.support.clients.destinations import LOOPBACK
from tests.support.clients.pulsar_auth import TokenKey, tls_settings
from tests.support.lifecycle.environment import Secrets
from tests.support.stacks import MakeStack

BLUE, GREEN = "safe-blue", "safe-green"
CLIENTS = "application"
"""The role of producers and consumers."""


@dataclass(frozen=True)
class SecureCluster:
    """One of both.

    Attributes:
        stack: its servers.
        authority: signs its certificate.
        superuser: the role that may do all.
        admin_url: `https://…` of its broker.
        broker_url: `pulsar+ssl://…` of its broker.
        access: what its superuser needs.
    """

    stack: Stack
    authority: Authority
    superuser: str
    admin_url: str
    broker_url: str
    access: AdminAccess

    def admin(self) -> PulsarAdmin:
        """Return its admin interface, as its superuser; a context manager."""
        return PulsarAdmin.open(self.access, [self.admin_url])

    def reached(self, credentials: str) -> dict[str, object]:
        """Return how an input names it: by addresses with TLS alone."""
        return {
            "metadata_url": self.stack.metadata_url,
            "admin_urls": [self.admin_url],
            "service_url_tls": self.admin_url,
            "broker_service_url_tls": self.broker_url,
            "credentials": credentials,
        }


@dataclass(frozen=True)
class SecureClusters:
    """Both clusters.

    Attributes:
        key: signs tokens that brokers of both accept.
        trust: certificates of both authorities, as clients that follow need them.
    """

    blue: SecureCluster
    green: SecureCluster
    key: TokenKey
    trust: Path

    def input(self, blue: str = "blue", green: str = "green", **more: object) -> BlueGreenInput:
        """Return the migration, with these credentials."""
        sides = {"blue": self.blue.reached(blue), "green": self.green.reached(green)}
        return BlueGreenInput.model_validate(
            {"hold_before_cutover": False, "cluster": BLUE, "green_cluster": GREEN, **sides, **more}
        )

    def client_options(self) -> dict[str, Any]:
        """Return what Pulsar's Python client needs to reach either."""
        return {
            "authentication": pulsar.AuthenticationToken(self.key.token(CLIENTS)),
            "tls_trust_certs_file_path": str(self.trust),
            "tls_validate_hostname": True,
        }

    def deposit(self, secrets: Secrets) -> None:
        """Write what the worker needs into the files that its settings name, and what is wrong next to it."""
        token, blue, green = self.key.token, self.blue.authority.cert_file, self.green.authority.cert_file
        secrets.write("blue", token(self.blue.superuser), blue)
        secrets.write("green", token(self.green.superuser), green)
        secrets.write("clients", token(CLIENTS), self.trust)
        secrets.write("strangers", TokenKey().token(CLIENTS), self.trust)
        secrets.write("misled", token(self.green.superuser), blue)


def secure_clusters(make_stack: MakeStack, tools: Toolchain, folder: Path, *, blue_tools: Toolchain) -> SecureClusters:
    """Start both, at once; blue with programs of its own."""
    key = TokenKey()

    def start(name: str) -> SecureCluster:
        (place := folder / name).mkdir()
        return _start(make_stack, Authority(tools, place), key, name, blue_tools if name == BLUE else tools)

    with ThreadPoolExecutor(2) as pool:
        blue, green = pool.map(start, (BLUE, GREEN))
    trust = folder / "both.pem"
    trust.write_bytes(blue.authority.cert_file.read_bytes() + green.authority.cert_file.read_bytes())
    return SecureClusters(blue, green, key, trust)


def _start(make_stack: MakeStack, authority: Authority, key: TokenKey, name: str, tools: Toolchain) -> SecureCluster:
    superuser = f"{name}-admin"
    settings = {
        **key.broker_settings(superuser),
        **tls_settings(authority, authority.identity(name, "127.0.0.1")),
        "brokerServicePortTls": "0",
        "clusterMigrationCheckDurationSeconds": "1",
        **KEPT_TOPICS,
        # Not every cluster has them.
        "topicLevelPoliciesEnabled": "false",
    }
    spec = StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=name, broker_settings=settings)
    stack = make_stack(spec, tools=tools)
    reader = open_reader(parse_store_url(stack.metadata_url), Access())
    (broker,) = brokers(reader)
    reader.close()
    registration = json.loads(broker.data)
    access = AdminAccess(30, Token(SecretStr(key.token(superuser))), Tls(str(authority.cert_file)), LOOPBACK)
    return SecureCluster(
        stack,
        authority,
        superuser,
        str(registration["webServiceUrlTls"]),
        str(registration["pulsarServiceUrlTls"]),
        access,
    )
