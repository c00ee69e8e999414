"""The command line on real servers."""
