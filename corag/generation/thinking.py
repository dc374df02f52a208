r"""What a model thinks before it replies: switched off, or with a budget and out of the reply.

Chat templates tell how: by variables that switch thoughts off, by the marks that they take thoughts out of
earlier replies with, and by what stands between the beginning of a turn and a reply. Without a thought a
template's own form of none stands there ("<think>\n\n</think>\n\n" for Qwen3, the final channel for
gpt-oss, the response token for Command R), before the words that a prompt begins the reply with. So
replies, scores of given texts and training rows all stand in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from corag.core.errors import ConfigError
from corag.core.prompting.prompt import Thought
from corag.core.protocols import Completion, Generator
from corag.core.seeds import stable_hash

Mode: TypeAlias = Literal["off", "strip", "watch"]
"""What becomes of thoughts; "watch": none are expected, and those that come all the same are taken out."""


@dataclass(frozen=True, slots=True)
class ThoughtForm:
    """How a family of models writes a thought.

    Attributes:
        template_mark: what tells a template of this form.
        opening: what begins a thought.
        end: what ends it.
        closing: what ends it and begins the reply.
        none: what stands in the place of both where nothing was thought.
        always: the model thinks though no generation prompt says so, and no variable switches it off.
        optional: it does not think in plain conversations.
    """

    template_mark: str
    opening: str
    end: str
    closing: str
    none: str
    always: bool = False
    optional: bool = False

    @property
    def begin(self) -> str:
        """The mark that a thought begins with."""
        return self.opening.strip()

    def thought_in(self, text: str) -> int | None:
        """Return where a reply begins behind a thought; its length if the thought does not end.

        None without a thought. The end alone will do, for a prompt may have opened the thought.
        """
        start = len(text) - len(text.lstrip())
        begins = text.startswith(self.begin, start)
        end = text.find(self.closing.strip(), start)
        end, mark = (end, self.closing.strip()) if end >= 0 else (text.find(self.end, start), self.end)
        if end < 0:
            return len(text) if begins else None
        if not begins and self.end == "<|end|>":  # of a turn, in other families
            return None
        end += len(mark)
        return end + len(text[end:]) - len(text[end:].lstrip())


THINK = ThoughtForm("</think>", "<think>\n", "</think>", "\n</think>\n\n", "<think>\n\n</think>\n\n")
FORMS = (
    ThoughtForm(
        "<|channel|>",  # gpt-oss
        "<|channel|>analysis<|message|>",
        "<|end|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|channel|>final<|message|>",
        always=True,
    ),
    ThoughtForm(
        "<|START_RESPONSE|>",  # Command R and A
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|END_THINKING|><|START_RESPONSE|>",
        "<|START_RESPONSE|>",
        optional=True,
    ),
    ThoughtForm(
        "<|channel>thought",  # gemma 4
        "<|channel>thought\n",
        "<channel|>",
        "<channel|>",
        "<|channel>thought\n<channel|>",
    ),
    ThoughtForm("[/THINK]", "[THINK]", "[/THINK]", "[/THINK]", "[THINK][/THINK]"),  # Magistral
    ThoughtForm("</thought>", "<thought>\n", "</thought>", "\n</thought>\n\n", "<thought>\n\n</thought>\n\n"),
    THINK,  # the last: some of the others' templates read it as well
)
# Variables of templates that switch thoughts, with what means off and on.
SWITCHES: Mapping[str, tuple[Any, Any]] = {
    "enable_thinking": (False, True),  # Qwen3, GLM, SmolLM3, gemma 4, Nemotron 3
    "thinking": (False, True),  # DeepSeek V3.1, Granite 3
    "reasoning": (False, True),  # Command A Reasoning
}
# Variables of templates that are the conversation's, the tokenizer's, or functions.
_NOT_TO_BE_SET = frozenset(
    "messages tools documents add_generation_prompt continue_final_message bos_token eos_token pad_token "
    "unk_token raise_exception strftime_now namespace range dict lipsum cycler joiner".split()
)


@dataclass(frozen=True, slots=True)
class ThinkingOptions:
    """What was asked for: as ``thinking`` and ``template_args`` of :class:`ModelConfig` are."""

    mode: Literal["auto", "off", "strip"] = "auto"
    template_args: Mapping[str, Any] = field(default_factory=dict)


AS_SUITS = ThinkingOptions()


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a model's chat template makes of the options.

    Attributes:
        mode: what becomes of thoughts.
        args: the arguments that the template is given.
        form: how the model writes thoughts; None if its template knows of none.
        none: what the template puts before a reply without thoughts, behind the generation prompt; None if
            it does not tell.
        gap: what it puts between a closed thought and a reply; None likewise.
    """

    mode: Mode = "watch"
    args: Mapping[str, Any] = field(default_factory=dict)
    form: ThoughtForm | None = None
    none: str | None = None
    gap: str | None = None

    @property
    def generates(self) -> bool:
        """Whether a thought is generated before each reply."""
        return self.mode == "strip" and self.form is not None

    @property
    def closes(self) -> bool:
        """Whether the form of no thought stands before replies that nothing was thought for."""
        return self.mode in ("off", "strip") and self.form is not None

    @property
    def identity(self) -> str:
        """What tells it from a model that never thinks, "" for such a one."""
        mode = self.mode if self.form is not None else "watch"
        args = stable_hash(repr(sorted(self.args.items()))) if self.args else ""
        return f":thinking={mode}{args and '/'}{args}" if args or mode != "watch" else ""

    def describe(self) -> str:
        """Return a line on it, "" for a model that does not think."""
        if self.form is None or self.mode == "watch":
            return ""
        if self.mode == "off":
            return "the model replies without thoughts: with model.thinking=strip it thinks first."
        return (
            "the model thinks before each reply, which costs most of its tokens. Only search_o1 and "
            "search_r1 see its thoughts. With model.thinking=off it has none."
        )

    def lead(self, conversation: str, thought: Thought | None) -> str:
        """Return what stands between a rendered conversation and the reply's first words.

        ``conversation``: with its generation prompt. ``thought``: what was thought; None for nothing.
        """
        form = self.form or THINK
        if thought is not None and not thought.closed and not self.generates:
            thought = None
        if thought is None and not self.closes:
            return ""
        tail = conversation.rstrip()
        if tail.endswith(form.end):  # the template has closed it
            return self.gap or ""
        is_open = tail.endswith(form.begin)
        if thought is None and not is_open:
            return form.none if self.none is None else self.none
        before = (self.none or "")[: max(0, (self.none or "").find(form.begin))]
        opening = "" if is_open else before + form.opening
        if thought is not None and not thought.closed:
            return opening + thought.text
        text = "" if thought is None else thought.text.rstrip()
        # "<think>\n\n" is closed by no further line: it is as empty as "<think>\n\n</think>".
        closing = form.closing.lstrip() if not text and conversation.endswith("\n\n") else form.closing
        return opening + text + closing


class ThinkingEngine(Generator):
    """An engine that may render prompts itself, so that thoughts can be asked for apart.

    Attributes:
        thinking: what becomes of the model's thoughts; None where the engine sees to them.
        window: longest prompt plus completion, in tokens.
    """

    thinking: Thinking | None = None
    window: int = 0


def resolve_thinking(
    options: ThinkingOptions,
    template: str,
    render: Callable[[Mapping[str, Any], str | None], str],
    marks: Collection[str] = (),
) -> Thinking:
    """Find out how a chat template writes thoughts, and decide what becomes of them.

    Args:
        options: what was asked for.
        template: its source.
        render: fills it in for a question, with arguments, and with a reply or (None) a generation prompt.
            "" for a conversation that it refuses.
        marks: the names of tokens that the tokenizer has besides those of words.

    Raises:
        ConfigError: for an argument that the template does not have.
    """
    variables = template_variables(template)
    _check_arguments(options.template_args, variables)
    prompt = render(options.template_args, None)
    tail = prompt.rstrip()
    form = next((form for form in FORMS if form.template_mark in template or tail.endswith(form.begin)), None)
    if form is None and options.mode in ("off", "strip"):  # the user knows more than the template
        form = next((form for form in FORMS if form.begin in marks), None)
    switches = variables & SWITCHES.keys()
    mode = _mode(options, form, bool(switches), prompt)
    position = {"off": 0, "strip": 1}.get(mode)
    switch_values = {} if position is None else {name: SWITCHES[name][position] for name in sorted(switches)}
    args = switch_values | dict(options.template_args)
    if form is None:
        return Thinking(mode, args)
    off = {name: SWITCHES[name][0] for name in switches} | dict(options.template_args)
    before_reply, before_off = _before_reply(args, render), _before_reply(off, render)
    return Thinking(
        mode,
        args,
        form,
        none=before_reply[1]
        if before_reply and (form.end in before_reply[1] or form.none in before_reply[1])
        else None,
        gap=before_off[1] if before_off and before_off[0].rstrip().endswith(form.end) else None,
    )


def _check_arguments(args: Mapping[str, Any], variables: frozenset[str]) -> None:
    if unknown_names := sorted(args.keys() - variables):
        names = sorted(variables - _NOT_TO_BE_SET)
        raise ConfigError(
            f"the model's chat template has no argument {', '.join(unknown_names)}, which "
            f"'model.template_args' gives it: it has {', '.join(names) or 'none'}."
        )


def _mode(options: ThinkingOptions, form: ThoughtForm | None, has_switches: bool, prompt: str) -> Mode:
    if options.mode != "auto":
        return "watch" if options.mode == "strip" and form is None else options.mode
    values = [value for name, value in options.template_args.items() if name in SWITCHES]
    if values:
        return "strip" if any(values) and form is not None else "off"
    if has_switches or (form is not None and form.optional):
        return "off"
    thinks = form is not None and (form.always or prompt.rstrip().endswith(form.begin))
    return "strip" if thinks else "watch"


def _before_reply(
    args: Mapping[str, Any], render: Callable[[Mapping[str, Any], str | None], str]
) -> tuple[str, str] | None:
    """Return a generation prompt, and what the template puts behind it and before a reply.

    None if a conversation with a reply does not begin with the generation prompt.
    """
    reply = "Certainly"  # a word that no chat template has of its own
    prompt, whole = render(args, None), render(args, reply)
    at = whole.rfind(reply)
    if not prompt or at < len(prompt) or not whole.startswith(prompt):
        return None
    return prompt, whole[len(prompt) : at]


def template_variables(template: str) -> frozenset[str]:
    """Return the variables that a chat template reads without setting them; none if it is no template."""
    import jinja2
    from jinja2 import meta
    from transformers.utils import chat_template_utils

    try:
        environment = chat_template_utils._compile_jinja_template(template).environment
        return frozenset(meta.find_undeclared_variables(environment.parse(template)))
    except (jinja2.TemplateError, AttributeError):
        return frozenset()


def thought_in(text: str) -> int:
    r"""Return where a reply begins behind the thoughts that a model wrote before it; 0 if there are none.

    The text's length if the thought does not end.

    >>> text = "<think>Rome? no</think>\n\nParis"
    >>> text[thought_in(text):], thought_in("It is Paris"), thought_in("Rome? no</think>Paris")
    ('Paris', 0, 16)
    """
    starts = (form.thought_in(text) for form in FORMS)
    return next((start for start in starts if start is not None), 0)


def is_cut(text: str) -> bool:
    """Whether a text is a thought that does not end."""
    return (
        bool(text.strip())
        and thought_in(text) == len(text)
        and not any(text.rstrip().endswith(form.end) for form in FORMS)
    )


def inner_text(thought: str) -> str:
    r"""Return a thought without the marks around it.

    >>> inner_text("<think>\nRome? no</think>"), inner_text("<think>Rome"), inner_text("Rome?")
    ('Rome? no', 'Rome', 'Rome?')
    """
    text = thought.strip()
    for form in FORMS:
        if text.startswith(form.begin) or text.endswith(form.end):
            return text.removeprefix(form.begin).removesuffix(form.end).strip()
    return thought


def without_thought(completion: Completion, start: int) -> Completion:
    """Return a completion without its first ``start`` characters, and without the tokens that spell these."""
    text, texts, logprobs = completion.text[start:], completion.token_texts, completion.logprobs
    if not start or texts is None or logprobs is None:
        return replace(completion, text=text)
    ends = list(accumulate(map(len, texts)))
    dropped = sum(end <= start for end in ends)
    texts = tuple(each[max(0, len(each) - end + start) :] for each, end in zip(texts, ends, strict=True))
    return replace(
        completion,
        text=text,
        token_ids=completion.token_ids[dropped:],
        logprobs=logprobs[dropped:],
        token_texts=texts[dropped:],
    )
