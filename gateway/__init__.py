"""The REST gateway of scalable topics (PIP-468): a process next to the worker, for programs that know no Temporal."""
