"""The migrations of regular topics to scalable ones, as workflows."""
