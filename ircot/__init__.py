"""IRCoT: interleaving retrieval with chain-of-thought reasoning (Trivedi et al., ACL 2023).

The method is ``ircot(question, tools, config)``, its options are :class:`IRCoTConfig`.
"""

from ircot.method import IRCoTAnswer, IRCoTConfig, ircot

__all__ = ["IRCoTAnswer", "IRCoTConfig", "ircot"]
