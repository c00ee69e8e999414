"""Faults in the migrations of regular topics to scalable ones."""
