"""Learners for tables: the count likelihood of whole tuples, fitted by a linear model and boosted trees. No torch."""
