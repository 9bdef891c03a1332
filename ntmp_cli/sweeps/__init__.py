"""Sweeps: plans of many trainings, windows of stable settings, and the engines that run the trainings."""
