"""The bookie cluster migration (PIP-477)."""
