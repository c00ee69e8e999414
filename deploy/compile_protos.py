"""Build step: compile the .proto files of both distributions into Python modules with type stubs next to them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGES = ("clients", "pulsar_wire")
"""Packages with .proto files, of the distribution that is built."""


def compile_protos(root: Path) -> list[Path]:
    """Compile every .proto file of a distribution; returns the compiled files, which are written where they changed.

    Raises:
        RuntimeError: the compiler refused a file; its own message is on standard error.
    """
    sources = sorted(source for package in _PACKAGES for source in (root / package).rglob("*.proto"))
    # On the same file system as the results, so that each takes its place at once: others may import them right now.
    with tempfile.TemporaryDirectory(prefix=".protos-", dir=root) as scratch:
        arguments = [f"--proto_path={root}", f"--python_out={scratch}", f"--pyi_out={scratch}", *map(str, sources)]
        if sources and subprocess.call([sys.executable, "-m", "grpc_tools.protoc", *arguments]) != 0:
            raise RuntimeError(f"protoc failed on {', '.join(str(source) for source in sources)}")
        compiled = sorted(path for path in Path(scratch).rglob("*_pb2.py*") if path.is_file())
        return [_put(path, root / path.relative_to(scratch)) for path in compiled]


def _put(fresh: Path, place: Path) -> Path:
    if not place.exists() or place.read_bytes() != fresh.read_bytes():
        fresh.replace(place)
    return place


class CompileProtos(BuildHookInterface[Any]):
    """Hatch runs this before it packs a wheel or links an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the results into the wheel though the repository ignores them."""
        del version
        written = compile_protos(Path(self.root))
        build_data["artifacts"].extend(str(path.relative_to(self.root)) for path in written)


if __name__ == "__main__":
    for folder in sys.argv[1:] or (".", "scalable_client"):
        compile_protos(Path(folder).resolve())
