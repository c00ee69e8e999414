"""The commands that hold for every migration, a file for each; those of one migration are in `cli/<migration>.py`."""
