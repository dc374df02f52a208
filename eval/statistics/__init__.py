"""Intervals, paired comparisons and fitted curves."""
