"""The migration of regular topics to scalable ones (PIP-475)."""
