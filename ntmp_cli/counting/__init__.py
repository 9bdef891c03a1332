"""What is known of a tuple's count, the law of the count given scores, and posteriors of its members. No torch."""
