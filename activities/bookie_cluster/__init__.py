"""The steps of the bookie cluster switch (PIP-477)."""
