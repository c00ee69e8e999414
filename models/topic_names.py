"""How brokers read names of topics."""

from __future__ import annotations

import re

PARTITION = re.compile(r"-partition-(0|[1-9]\d*)$")
"""The end of a partition's name; a number with a zero before it is a part of an ordinary name."""
