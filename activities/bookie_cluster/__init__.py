"""The steps of the bookie cluster migration (PIP-477)."""
