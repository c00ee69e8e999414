"""An index of Python packages over a folder, as pip asks it; it can serve a file with one changed byte."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

_ROUTE = re.compile(r"(?:/changed/(?P<changed>[^/]+))?/(?:simple/(?P<project>[^/]+)/|files/(?P<file>[^/]+))")


def project_of(file: str) -> str:
    """Return the canonical name of the project of a wheel or a source archive.

    Args:
        file: its name.
    """
    return str((parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file))[0])


def with_changed_byte(content: bytes) -> bytes:
    """Return the content with another byte in its middle."""
    middle = len(content) // 2
    return b"".join((content[:middle], bytes([content[middle] ^ 1]), content[middle + 1 :]))


@contextmanager
def serve_index(folder: Path, port: int = 0) -> Generator[str]:
    """Serve the files of a folder on loopback; yields the address, below which `/simple` is an index.

    Below `/changed/PROJECT` the same is served, but each file of that project has one changed byte.

    Args:
        folder: holds wheels and source archives.
        port: where it listens; a free port by default.
    """
    files = [path for path in folder.iterdir() if path.suffix in (".whl", ".gz")]
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, {path.name: path for path in files}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, files: dict[str, Path], *arguments: object) -> None:
        self._files = files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer with the links of a project, or with a file."""
        route = _ROUTE.fullmatch(self.path)
        if route and (project := route["project"]):
            names = [name for name in self._files if project_of(name) == canonicalize_name(project)]
            self._answer("".join(f'<a href="../../files/{html.escape(name)}">{name}</a>\n' for name in names).encode())
        elif route and (path := self._files.get(route["file"])):
            content = path.read_bytes()
            self._answer(with_changed_byte(content) if route["changed"] == project_of(path.name) else content)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing."""

    def _answer(self, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
