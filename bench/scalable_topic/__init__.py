"""The migration of regular topics to scalable ones."""
