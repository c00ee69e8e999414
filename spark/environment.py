"""The environment variables of Spark, which must be set before the process has other threads.

The C library moves the whole environment where a variable is added, and other languages' threads read it without
Python's lock: Temporal's core reads it for each name that it resolves, and the process dies (SIGSEGV in `getenv`,
seen in a worker that connected while Spark started).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

# Variables that PySpark sets at a session's start, with its defaults. Replacing an existing variable moves nothing.
_WRITTEN = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}


def preset_spark_env() -> None:
    """Set all variables that a session would add later; call it in the main thread, before there are others."""
    for name, value in _WRITTEN.items():
        os.environ.setdefault(name, value)  # mutant: shared/environment-moves-while-others-read-it


@contextmanager
def patched_environ(module: ModuleType, variables: Mapping[str, str]) -> Generator[None]:
    """Show the code of one module variables that the process does not have."""
    module.__dict__["os"] = SimpleNamespace(environ={**os.environ, **variables})
    try:
        yield
    finally:
        module.__dict__["os"] = os
