"""Drills: what breaks runs, machines and files in real life, done on purpose. See docs/drills.md."""
