"""Sweeps: plans of many trainings, the windows they reveal, and the engines that carry them out."""
