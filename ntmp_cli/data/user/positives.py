"""Positive labels that are unambiguous by name."""

from __future__ import annotations

from collections.abc import Collection

# Pairs of a negative and a positive label.
_KNOWN_LABELS = (("0", "1"), ("-1", "1"), ("false", "true"), ("no", "yes"), ("negative", "positive"))


def known_positives(labels: Collection[str]) -> set[str] | None:
    """The positive labels, if all labels belong to one known pair; otherwise None."""
    plain = {label: label.lower().removesuffix(".0").removeprefix("+") for label in labels}
    known = next((pair for pair in _KNOWN_LABELS if set(plain.values()) <= set(pair)), None)
    return None if known is None else {label for label in labels if plain[label] == known[1]}
