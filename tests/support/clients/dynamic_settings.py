"""Dynamic settings of brokers by their admin interface; migrations write them into the metadata store."""

from __future__ import annotations

from clients.pulsar.admin.answers import STRINGS
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.http import Endpoint
from clients.pulsar.names import encoded

_PATH = "/brokers/configuration"


def dynamic_values(admin: PulsarAdmin) -> dict[str, str]:
    """Return the changed dynamic settings, which apply to all brokers of the cluster."""
    return _endpoint(admin).get_as(STRINGS, f"{_PATH}/values")


def set_dynamic(admin: PulsarAdmin, name: str, value: str) -> None:
    """Change a setting of all brokers of the cluster, now and after restarts."""
    _endpoint(admin).post(f"{_PATH}/{encoded(name)}/{encoded(value)}")


def remove_dynamic(admin: PulsarAdmin, name: str) -> None:
    """Reset a setting to what `broker.conf` says, after a restart of the brokers."""
    _endpoint(admin).delete(f"{_PATH}/{encoded(name)}")


def _endpoint(admin: PulsarAdmin) -> Endpoint:
    return Endpoint(admin.session, admin.urls)
