"""Tests of the controller of scalable topics on real servers."""
