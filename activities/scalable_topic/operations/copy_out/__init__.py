"""Copy the messages of a scalable topic to a regular one, and prove it."""
