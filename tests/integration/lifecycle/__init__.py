"""What all migrations share."""
