"""What users type, what workflows carry and what the stores hold; no input or output happens here."""
