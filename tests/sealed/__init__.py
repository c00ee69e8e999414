"""A network that leads nowhere, with a container engine, a registry of images and an index of Python packages.

`python -m tests.sealed COMMAND…` runs a command there, as root on Debian. Everything comes from Debian's and Python's
registries before; nothing is installed on the machine, and nothing is left but the user's cache.
"""
