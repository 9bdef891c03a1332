"""Labelled sources to pools to tuples, and the grammar of tuple specs."""
