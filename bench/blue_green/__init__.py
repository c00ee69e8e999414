"""The blue-green cluster migration (PIP-188)."""
