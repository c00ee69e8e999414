"""The environment of programs that a process starts: what they need to run, and none of our settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

_USER = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "JAVA_HOME", "SSH_AUTH_SOCK")
# By the last two a program in a pod finds Kubernetes' API server.
_KUBERNETES = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
INHERITED = frozenset((*_USER, *_KUBERNETES))
"""Variables that every program gets, next to `LC_*`."""

_OURS = ("PULSAR_MIGRATE_", "TEMPORAL_")


def _not_ours(name: str) -> str:
    if name.startswith(_OURS):
        raise ValueError(f"{name} is a setting of this program, which may hold credentials; programs do not get it")
    return name


OtherVariable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_not_ours)]
"""Name of a variable that is not a setting of this program."""


def child_environment(
    variables: Mapping[str, str], *, further: Iterable[str] = (), prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the environment of a program.

    Args:
        variables: its own variables, which win.
        further: names that it inherits next to `INHERITED`.
        prefixes: beginnings of names that it inherits, too.
    """
    inherited, beginnings = INHERITED | {*further}, ("LC_", *prefixes)
    # mutant: shared/children-inherit-credentials
    shared = {name: value for name, value in os.environ.items() if name in inherited or name.startswith(beginnings)}
    return {**shared, **variables}
