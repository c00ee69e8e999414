"""The metadata store migration (PIP-454)."""
