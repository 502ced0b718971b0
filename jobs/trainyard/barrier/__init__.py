"""Starts a function on ranks that work together, as the tasks of a Spark barrier stage."""
