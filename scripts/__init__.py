"""Entry points: the corag command and shell recipes."""
