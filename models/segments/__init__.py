"""Segments of scalable topics: their layout, its changes and its repair."""
