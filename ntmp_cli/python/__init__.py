"""Around NTMPClassifier: rows that form tuples, DataFrames, and scikit-learn's model selection."""
