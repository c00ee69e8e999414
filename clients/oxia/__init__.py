"""Client of Oxia that keeps version ids and modification counts, for bulk copies and small records."""

from clients.oxia.client import OxiaClient
from clients.oxia.probe import probe_target, speaks_v1
from clients.oxia.reader import OxiaReader
from clients.oxia.writer import OxiaWriter

__all__ = ["OxiaClient", "OxiaReader", "OxiaWriter", "probe_target", "speaks_v1"]
