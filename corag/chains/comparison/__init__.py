"""Answers to comparisons that are computed from sub-answers, where they can be."""

from corag.chains.comparison.rules import ComputedAnswer, compare, next_sub_query

__all__ = ["ComputedAnswer", "compare", "next_sub_query"]
