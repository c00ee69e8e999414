"""Build step: compile the project's .proto files into Python modules with type stubs beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def compile_protos(root: Path) -> list[Path]:
    """Compile every `clients/**/*.proto`; returns the files written.

    Raises:
        RuntimeError: the compiler refused a file; its own message is on standard error.
    """
    sources = sorted((root / "clients").rglob("*.proto"))
    arguments = [f"--proto_path={root}", f"--python_out={root}", f"--pyi_out={root}", *map(str, sources)]
    if sources and subprocess.call([sys.executable, "-m", "grpc_tools.protoc", *arguments]) != 0:
        raise RuntimeError(f"protoc failed on {', '.join(str(source) for source in sources)}")
    return [source.with_name(source.stem + suffix) for source in sources for suffix in ("_pb2.py", "_pb2.pyi")]


class CompileProtos(BuildHookInterface[Any]):
    """Hatch runs this before it packs a wheel or links an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the results into the wheel though the repository ignores them."""
        del version
        written = compile_protos(Path(self.root))
        build_data["artifacts"].extend(str(path.relative_to(self.root)) for path in written)


if __name__ == "__main__":
    compile_protos(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
