"""Bulk copy and bulk compare as Spark jobs; an activity or `spark-submit` runs them."""
