"""Numbered messages through real topics, and the audit of their delivery."""
