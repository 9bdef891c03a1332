"""Data of the user's own: rows of counted tuples, unlabeled rows, and how they become features."""
