"""Settings of a process: read from the environment, where each variable of ours must be known."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import pydantic
from pydantic_settings import BaseSettings

from process.exit_codes import CommandFailed, ExitCode

SettingsT = TypeVar("SettingsT", bound=BaseSettings)

PREFIX = "PULSAR_MIGRATE_"
"""Of the worker's variables, and the start of all others."""

_READ_ELSEWHERE = (
    "PULSAR_MIGRATE_GATEWAY_",
    "PULSAR_MIGRATE_CODEC_SERVER_",
    "PULSAR_MIGRATE_PAGE_",
    "PULSAR_MIGRATE_PAYLOAD_",
    "PULSAR_MIGRATE_CREDENTIALS__",
    "PULSAR_MIGRATE_HOOKS__",
    "PULSAR_MIGRATE_IMAGE_",
)
"""Prefixes of variables that other settings, or their own check, read."""
_NO_SETTINGS = frozenset(f"{PREFIX}{name}" for name in ("LOG", "CLUSTER", "CACHE", "STACK", "PULSAR", "BLUE"))
"""Variables of the log, the commands, the development servers and their tests."""


def settings_of(kind: type[SettingsT], prefix: str, options: Mapping[str, Any] | None = None) -> SettingsT:
    """Return the settings of this process.

    Args:
        kind: class of the settings.
        prefix: prefix of their environment variables.
        options: values that replace those of the environment.

    Raises:
        CommandFailed: a variable is wrong or unknown; the message names it.
    """
    _require_known(kind, prefix)
    try:
        return kind(**(options or {}))
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        if not fault["loc"]:
            # Settings that contradict each other.
            cause = f"{prefix}*: {fault['msg'].removeprefix('Value error, ')}."
            raise CommandFailed(ExitCode.USAGE, cause, "correct these settings") from error
        name = "__".join(map(str, fault["loc"])).upper()
        # A field with a variable name of its own is named by that.
        name = name if name.startswith("PULSAR_MIGRATE_") else f"{prefix}{name}"
        cause = f"{name}: {fault['msg'].removeprefix('Value error, ')}."
        raise CommandFailed(ExitCode.USAGE, cause, f"correct {name}") from error
    except ValueError as error:
        # pydantic-settings reports JSON that it cannot read this way; the message names the field only.
        cause = f"{error} in the environment (prefix {prefix})."
        raise CommandFailed(ExitCode.USAGE, cause, "write this variable as JSON") from error


def _require_known(kind: type[BaseSettings], prefix: str) -> None:
    """Raise CommandFailed for a variable that no settings have: a misspelled TLS setting would be no TLS."""
    fields = {f"{prefix}{name}".upper() for name in kind.model_fields}
    others = tuple(other for other in _READ_ELSEWHERE if other != prefix)
    for variable in sorted(os.environ):
        if not variable.startswith(prefix) or variable.startswith(others) or variable in fields | _NO_SETTINGS:
            continue
        near = difflib.get_close_matches(variable, fields, n=1, cutoff=0.8)
        cure = f"correct it; a setting is named {near[0]}" if near else "correct it, or unset it"
        raise CommandFailed(ExitCode.USAGE, f"{variable} is not a setting.", cure)
