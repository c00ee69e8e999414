"""Kill, pause, cut, corrupt and double starts, on real servers."""
