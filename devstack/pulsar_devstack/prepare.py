"""Install the project and get the servers, side by side: `python -m pulsar_devstack.prepare TARGET`.

TARGET is the Makefile's target that installs the project. Nothing is installed yet when this runs, so it uses, and
imports, the standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from pulsar_devstack.errors import DevStackError, ProvisionFailed
from pulsar_devstack.servers.cache import Cache, cache_folder
from pulsar_devstack.servers.fetch import Fetcher, print_progress
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.timings import Timings


def prepare(target: str) -> None:
    """Make what is missing of both, and show what took how long.

    Raises:
        DevStackError: one of them failed; the other was carried on to its end.
    """
    timings = Timings()
    cache = Cache(cache_folder(), print_progress, timings)
    # It looks for the machine's JDK and Maven at once: where they are missing, nothing is fetched.
    fetcher = Fetcher(cache, chosen_release(), servers_only=True)
    with ThreadPoolExecutor(1) as pool:
        installed = pool.submit(_install, target, timings)
        fetcher.run()
    installed.result()
    for line in timings.table():
        print_progress(line)


def _install(target: str, timings: Timings) -> None:
    # Where it is up to date, nothing is measured and nothing is said.
    if subprocess.call(["make", "--no-print-directory", "--question", target]) == 0:
        return
    print_progress("environment: begin")
    with timings.measure("environment"):
        if code := subprocess.call(["make", "--no-print-directory", "--silent", target]):
            raise ProvisionFailed(f"make {target} ended with {code}; its words are above")
    print_progress("environment: done")


def main(arguments: list[str]) -> int:
    """Prepare; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m pulsar_devstack.prepare TARGET\n")
        return 2
    try:
        prepare(arguments[0])
    except DevStackError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
