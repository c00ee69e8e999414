"""What the command line knows alone of the migrations to scalable topics, and of operations on such."""

from __future__ import annotations

from cli.migrations import Servers

servers = Servers.of
