"""What all inputs of migrations and operations on scalable topics share."""

from __future__ import annotations

from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.input import MigrationInput


class ClusterInput(ClusterAccess, MigrationInput):
    """Base of these inputs."""

    @property
    def kind(self) -> str:
        """Return the same for a topic, many topics and operations: their servers need the same."""
        return "scalable-topic"
