"""Servers of migrations to scalable topics and of operations on them, for `doctor` and `features`."""

from __future__ import annotations

from cli.migrations import Servers

servers = Servers.of
