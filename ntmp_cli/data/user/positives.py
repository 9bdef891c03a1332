"""Which labels are positive where their names leave no doubt."""

from __future__ import annotations

from collections.abc import Collection

# The positive one of two comes last.
_KNOWN_LABELS = (("0", "1"), ("-1", "1"), ("false", "true"), ("no", "yes"), ("negative", "positive"))


def known_positives(labels: Collection[str]) -> set[str] | None:
    """The labels that mean yes, if all of them mean yes or no; else None."""
    plain = {label: label.lower().removesuffix(".0").removeprefix("+") for label in labels}
    known = next((pair for pair in _KNOWN_LABELS if set(plain.values()) <= set(pair)), None)
    return None if known is None else {label for label in labels if plain[label] == known[1]}
