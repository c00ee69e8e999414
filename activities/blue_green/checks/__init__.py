"""Checks of both clusters, in PRECHECK and before each batch."""
