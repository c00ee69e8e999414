"""The typed clients."""
