"""Engines: where the trainings of a sweep are carried out. One module each; the rest of a sweep is the same for all."""
