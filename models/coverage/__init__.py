"""What Pulsar clusters can use, and what becomes of it in each migration."""
