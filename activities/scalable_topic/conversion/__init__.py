"""The flip of one topic and its withdrawal, by any phase or later run."""
