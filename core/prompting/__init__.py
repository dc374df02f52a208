"""Prompts as values: versioned files, what is rendered into them, what is left out when they are too long.

A :class:`Template` is a parsed prompt file; filled, it is a :class:`Prompt` of messages made of segments.
Segments say in which order they may go (``shorten``). ``render`` writes passages and worked examples, which
``demonstrations`` reads.
"""

from core.lazy import lazy_exports

_PLACES = {
    "Demonstration": "core.prompting.demonstrations",
    "DemonstrationConfig": "core.prompting.demonstrations",
    "Message": "core.prompting.prompt",
    "Prompt": "core.prompting.prompt",
    "Segment": "core.prompting.prompt",
    "Shortening": "core.prompting.prompt",
    "Template": "core.prompting.template",
    "load_layout": "core.prompting.render",
    "load_prompt": "core.prompting.template",
    "load_template": "core.prompting.template",
    "parse_template": "core.prompting.template",
    "read_demonstrations": "core.prompting.demonstrations",
    "render_demonstrations": "core.prompting.render",
    "render_passages": "core.prompting.render",
}
__all__ = list(_PLACES)
__getattr__, __dir__ = lazy_exports(__name__, _PLACES)
