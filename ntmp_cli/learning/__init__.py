"""Learning an instance scorer from counts: risks, methods, models, batches and the loop."""
