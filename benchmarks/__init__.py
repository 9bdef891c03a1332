"""Ratios against the bare limit, measured side by side in one run. `python -m benchmarks [NAME...]`."""
