"""The gateway on real servers."""
