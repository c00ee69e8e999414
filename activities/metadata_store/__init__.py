"""The steps of the metadata store migration (PIP-454)."""
