"""How both clusters are reached: whether the credentials that an input names are there and can be used."""

from __future__ import annotations

from collections.abc import Iterator

from activities.lifecycle.runtime import Runtime
from clients.errors import NoCredentials, StoreDenied
from clients.pulsar.admin.http import HttpSession
from models.blue_green.input import BlueGreenInput
from models.lifecycle.failures import Blocker


def lacking_credentials(runtime: Runtime, input: BlueGreenInput) -> list[Blocker]:
    """What keeps this worker from asking one of both clusters anything."""
    return list(_lacking(runtime, input))


def _lacking(runtime: Runtime, input: BlueGreenInput) -> Iterator[Blocker]:
    named = [("blue", input.blue.credentials), ("green", input.green.credentials)]
    for side, name in (*named, *(("client", name) for name in input.client_credentials)):
        code = f"{side.upper()}_CREDENTIALS"
        try:
            HttpSession(runtime.admin_of(name)).close()
        except NoCredentials as error:
            variables = f"PULSAR_MIGRATE_CREDENTIALS__{name.upper()}__…"
            cure = f"correct the name in the input, or set {variables} for all workers"
            yield Blocker(code=code, cause=f"{error}.", cure=cure)
        except StoreDenied as error:
            yield Blocker(
                code=code,
                cause=f"the credentials {name!r} cannot be used: {error}.",
                cure="correct the worker's settings",
            )
