"""Commands for every migration, a file for each; commands of one migration are in `cli/<migration>.py`."""
