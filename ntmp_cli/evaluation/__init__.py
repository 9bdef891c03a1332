"""Metrics of scores against hidden labels, and their summary over seeds: pure functions of arrays."""
