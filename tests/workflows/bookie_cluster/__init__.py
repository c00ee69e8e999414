"""The bookie cluster switch (PIP-477)."""
