"""Requests to brokers with the plugin of PIP-477 ("REST API"); no release of Pulsar has it."""

from __future__ import annotations

from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.names import CursorName, encoded
from models.bookie_registry import ReadMode

PATH = "/bookie-clusters"


class BookieClustersReader:
    """Answer of the plugin of one broker."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def check(self) -> None:
        """Ask for the plugin's status.

        Raises:
            AdminUnsupported: the broker lacks the plugin.
        """
        self._endpoint.get(f"{PATH}/status")


class BookieClusters(BookieClustersReader):
    """The plugin of one broker, and its requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def promote_cursor(self, name: CursorName, cluster: str, ledger: int) -> int:
        """Ask a topic's owner to change the attribution of one cursor ("Cursor PROMOTE"); returns the answer's status.

        Args:
            name: the cursor.
            cluster: the attribution that it must have.
            ledger: the ledger that was built there.

        Raises:
            AdminConflict: the cursor has another ledger.
        """
        body = {
            "topic": str(name.topic),
            "cursorName": name.cursor,
            "targetClusterName": cluster,
            "expectedCursorsLedgerId": ledger,
        }
        return self._calls.post(f"{PATH}/internal/promote-cursor", body).status_code

    def set_read_mode(self, mode: ReadMode) -> None:
        """Set the clusters to read from."""
        self._calls.post(f"{PATH}/read-mode", {"mode": mode.value})

    def close_client(self, cluster: str) -> None:
        """Ask the broker to close its client of a cluster."""
        self._calls.post(f"{PATH}/close-client/{encoded(cluster)}")
