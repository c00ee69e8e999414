"""The launcher, and in an installed wheel the folder that holds everything else.

Our packages have short names (`models`, `clients`, `workflows`) that other distributions may use too. A wheel keeps
them inside this folder, which no other package uses, and a process of ours puts the folder first on its path.
"""

from __future__ import annotations

import sys
from pathlib import Path


def root() -> Path:
    """Return the folder that holds our packages: this one in an installed wheel, its parent in a checkout."""
    here = Path(__file__).resolve().parent
    return here if (here / "models").is_dir() else here.parent


def use_own_packages() -> None:
    """Make this process find our packages before all others; call it before the first import of one of them."""
    sys.path.insert(0, str(root()))
