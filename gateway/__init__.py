"""The REST gateway of scalable topics (PIP-468): a process beside the worker, for programs that know no Temporal."""
