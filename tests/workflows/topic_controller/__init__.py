"""The controller of scalable topics, with doubled steps."""
