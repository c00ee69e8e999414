"""Models that all migrations share."""
