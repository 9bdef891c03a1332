"""Metrics of scores against true labels, and their summary over seeds: pure functions of arrays."""
