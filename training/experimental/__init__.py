"""Preferences (DPO) and reinforcement (GRPO) of sub-queries: they run and are tested, but won little here.

``pairs`` makes preferences of the candidates that sampling keeps, on which ``dpo`` trains; ``grpo`` samples
sub-queries itself and has ``reward`` score what they brought. ``trainers`` holds the subclasses of TRL's
trainers. docs/results/preferences.md has the figures.
"""
