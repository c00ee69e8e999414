"""`report --html`: a file that only its user may read, and that loads nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.commands.status import write_page
from process.exit_codes import CommandFailed, ExitCode
from tests.support.page.views import ended, running


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("metadata-store-live", ExitCode.OK),
        ("metadata-store-rolled-back", ExitCode.FAILED),
        ("bookie-cluster-blockers", ExitCode.PRECHECK),
    ],
)
def test_end(tmp_path: Path, name: str, code: ExitCode) -> None:
    """The exit code is that of the end, and the file is for its user."""
    file = tmp_path / "report.html"
    assert write_page(ended()[name][0], file) is code
    assert file.stat().st_mode & 0o777 == 0o600


def test_loads_nothing(tmp_path: Path) -> None:
    """The file has no address but those in its own data, and its policy forbids connections."""
    file = tmp_path / "report.html"
    write_page(ended()["metadata-store-live"][0], file)
    text = file.read_text()
    assert re.findall(r'(?:src|href|action)="(?!data:|#)([^"]*)"', text) == []
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src &#39;none&#39;" in policy
    assert "connect-src" not in policy
    assert "data-parts" not in text


def test_before_the_end(tmp_path: Path) -> None:
    """Before the end the file holds the state; without a worker's answer the exit code says so."""
    view, _ = running()["metadata-store/VALIDATION/window"]
    assert write_page(view, tmp_path / "now.html") is ExitCode.OK
    silent = view.model_copy(update={"status": None, "silence": "no worker answers"})
    assert write_page(silent, tmp_path / "silent.html") is ExitCode.UNREACHABLE
    assert "No worker answers" in (tmp_path / "silent.html").read_text()


def test_link(tmp_path: Path) -> None:
    """A link is not followed."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "other")
    with pytest.raises(CommandFailed, match="link"):
        write_page(running()["metadata-store/VALIDATION/window"][0], link)
    assert not (tmp_path / "other").exists()
