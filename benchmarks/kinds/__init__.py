"""Measurements of every kind of count on data that the neighbouring fields use; see ../kinds_of_counts.py."""
