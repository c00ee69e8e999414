"""Faults in the controller of scalable topics."""
