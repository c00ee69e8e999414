"""Saved histories of the blue-green cluster migration."""
