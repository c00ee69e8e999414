"""How one topic becomes scalable, or stays regular, whichever phase or later run does that."""
