"""Saved histories of the migrations to scalable topics."""
