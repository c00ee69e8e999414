"""The checks of how the project writes: banned idioms, docstrings, names of variables, and pages."""
