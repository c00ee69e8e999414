"""The controller of scalable topics (PIP-468), for brokers that have none of their own."""
