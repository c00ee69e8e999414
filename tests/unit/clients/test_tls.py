"""How TLS settings become what the `ssl` module needs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import certifi
import pytest

from clients.tls import Tls


def test_shared_contexts_follow_their_files(tmp_path: Path) -> None:
    """One is made for all, and another once a file was renewed; files that are gone are an error as before."""
    file = Path(shutil.copy(certifi.where(), tmp_path / "ca.pem"))
    tls = Tls(ca_file=str(file))
    first = tls.shared_context()
    assert Tls(ca_file=str(file)).shared_context() is first
    assert Tls(ca_file=str(file), verify_hostname=False).shared_context() is not first
    os.utime(file, ns=(1, 1))
    assert tls.shared_context() is not first
    file.unlink()
    with pytest.raises(FileNotFoundError):
        tls.shared_context()
