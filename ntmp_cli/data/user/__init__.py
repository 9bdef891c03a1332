"""Users' data: rows of counted tuples, unlabeled rows, and how they become features."""
