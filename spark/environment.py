"""The environment variables of Spark, which are written before a process has threads or not at all.

The C library moves the whole environment where a variable is added, and other languages' threads read it without
Python's lock: Temporal's core looks into it for each name that it resolves, and the process dies (SIGSEGV in `getenv`,
seen in a worker that connected while Spark started).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

# What PySpark itself writes as a session starts, with what it takes where they are missing. A variable that is there
# already is replaced in its place.
_WRITTEN = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}


def preset_spark_env() -> None:
    """Add all variables that a session would add later; for the main thread, before there is another."""
    for name, value in _WRITTEN.items():
        os.environ.setdefault(name, value)  # mutant: shared/environment-moves-while-others-read-it


@contextmanager
def patched_environ(module: ModuleType, variables: Mapping[str, str]) -> Generator[None]:
    """Let the code of one module see variables which the process does not have."""
    module.__dict__["os"] = SimpleNamespace(environ={**os.environ, **variables})
    try:
        yield
    finally:
        module.__dict__["os"] = os
