"""Every path of every workflow on Temporal's time-skipping test server."""
