"""The copy of a scalable topic to a regular one."""
