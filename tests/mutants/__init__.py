"""Lines that must not be missing, each with the tests that notice when it is: `python -m tests.mutants`."""
