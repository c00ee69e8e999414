"""Each migration whole, on real servers."""
