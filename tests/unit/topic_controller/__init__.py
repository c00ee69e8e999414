"""Unit tests of the controller of scalable topics."""
