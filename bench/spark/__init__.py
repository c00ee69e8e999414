"""Who waits for whom in one Spark session: one job per item with slots of ours, or one job per run in FAIR pools."""
