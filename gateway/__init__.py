"""The REST gateway of scalable topics (PIP-468): a process for programs without a Temporal client."""
