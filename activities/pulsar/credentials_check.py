"""Check that a worker has the credentials that an input names."""

from __future__ import annotations

from collections.abc import Iterable

from activities.lifecycle.runtime import Runtime
from clients.errors import NoCredentials
from clients.pulsar.admin.errors import AdminNoCredentials
from clients.pulsar.admin.http import HttpSession
from models.lifecycle.failures import Blocker


def unusable_credentials(runtime: Runtime, names: Iterable[tuple[str, str | None]]) -> list[Blocker]:
    """Return a blocker for each set of credentials that this worker lacks, or of which it cannot use a file.

    Args:
        runtime: of the worker.
        names: what each set is for, as a prefix of the blocker's code (`TARGET`, or nothing), and its name; None where
            the input names none.
    """
    blockers: list[Blocker] = []
    for prefix, name in names:
        fault = None if name is None else _fault(runtime, name)
        if fault is not None:
            code = f"{prefix}_CREDENTIALS" if prefix else "CREDENTIALS"
            blockers.append(Blocker(code=code, cause=fault[0], cure=fault[1]))
    return blockers


def _fault(runtime: Runtime, name: str) -> tuple[str, str] | None:
    """Return why credentials cannot be used, and the cure; None if they can."""
    try:
        HttpSession(runtime.admin_of(name)).close()
    except AdminNoCredentials as error:
        return f"the credentials {name!r} cannot be used: {error}.", "correct the worker's settings"
    except NoCredentials as error:
        variables = f"PULSAR_MIGRATE_CREDENTIALS__{name.upper()}__…"
        return f"{error}.", f"correct the name in the input, or set {variables} for all workers"
    return None
