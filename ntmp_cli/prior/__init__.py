"""Class-prior estimators: pure functions of scores."""
