"""Check of the machine before anything is fetched: `python -m pulsar_devstack.machine`.

Uses the standard library only, since nothing is installed yet when a checkout is set up.
"""

from __future__ import annotations

import os
import sys

from pulsar_devstack.errors import DevStackError, ToolMissing
from pulsar_devstack.servers import tools
from pulsar_devstack.servers.server_releases import chosen_release


def export_java_home() -> None:
    """Set `JAVA_HOME` for Spark where the PATH has no `java` that is new enough, and the machine has one elsewhere.

    Spark looks at the PATH and at `JAVA_HOME` only. Without any JDK nothing is set; Spark and `doctor` name the cure.
    """
    try:
        java, _ = tools.find_java()
    except ToolMissing:
        return
    if java.parent.name == "bin" and not tools.is_on_path(java):
        os.environ["JAVA_HOME"] = str(java.parent.parent)


def main() -> int:
    """Check the machine; returns the exit code."""
    try:
        tools.require_tools(chosen_release())
    except DevStackError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
