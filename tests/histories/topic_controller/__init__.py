"""Saved histories of the controller of scalable topics."""
