"""Features that Pulsar clusters can use, and what each migration does with them."""
