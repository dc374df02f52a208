"""Prompts as values: versioned files, what is rendered into them, what is left out when they are too long.

A :class:`Template` is a parsed prompt file; filled, it is a :class:`Prompt` of messages made of segments.
Segments say in which order they may go (``shorten``). ``render`` writes passages and worked examples, which
``demonstrations`` reads.
"""

from corag.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "corag.core.prompting.demonstrations": "Demonstration DemonstrationConfig read_demonstrations",
        "corag.core.prompting.prompt": "Message Prompt Segment Shortening",
        "corag.core.prompting.template": "Template load_prompt load_template parse_template",
        "corag.core.prompting.render": "load_layout render_demonstrations render_passages",
    },
)
