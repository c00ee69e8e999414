"""Parts of activities that all migrations share."""
