"""Parts of workflows that all migrations share."""
