"""Client of Oxia that keeps version ids and modification counts, for bulk copies and small records."""
