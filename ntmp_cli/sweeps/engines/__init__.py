"""Engines: where the trainings of a sweep are carried out. One file each; the rest of a sweep does not know which."""
