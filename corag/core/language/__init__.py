"""Texts of any script: normalised answers, words, sentences."""
