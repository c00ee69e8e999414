"""The controller of scalable topics."""
