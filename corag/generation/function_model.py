"""A language model of the user's own: a function of a prompt, or an object of a class of generators."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from corag.core.errors import RequestRefusedError
from corag.core.own_objects import OwnFunction, describe
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Prompt
from corag.core.protocols import (
    Ability,
    Completion,
    GenerateRequest,
    Generation,
    Generator,
    GeneratorStage,
    Sampling,
)
from corag.core.types import TokenUsage
from corag.generation.fitting import EstimatedTokens, fit
from corag.generation.prefixes import repeated_length, request_prefix
from corag.generation.special_names import COMMON_NAMES, spaced_prompt

_SETTINGS = ("max_tokens", "temperature", "seed", "top_p", "stop")
_EXPECTATION = (
    "a model is a function of a prompt, such as `async def llm(prompt, max_tokens): ...`, an object with "
    "such a `generate`, or a corag.core.protocols.Generator: examples/ has adapters of other libraries"
)


def own_model(target: Any, identity: str, max_context: int) -> Generator:
    """Return a generator around the user's model.

    ``identity``: what tells it from others. ``max_context``: its window in tokens, to which prompts are
    shortened; 0 for as long as they come. Raises :class:`ConfigError` for what is no model.
    """
    if isinstance(target, Generator):
        return _BorrowedModel(target)
    return FunctionModel(target, identity, max_context)


class _BorrowedModel(GeneratorStage):
    """A generator that belongs to the user, so is not closed with the run."""

    async def close(self) -> None:
        """Do nothing."""


class FunctionModel(Generator):
    """A function that returns the text behind a prompt; tokens are estimated.

    It is given those settings that it has as parameters, and a conversation where its first parameter is
    called ``messages``. A reply ends at the first stop string, whether or not the function knows of these.
    """

    def __init__(self, target: Any, identity: str, max_context: int = 0) -> None:
        self._call = OwnFunction(target, "generate", _EXPECTATION)
        parameters = list(inspect.signature(self._call.function).parameters)
        self._settings = [name for name in _SETTINGS if name in parameters[1:]]
        self._takes_messages = parameters[:1] == ["messages"]
        self._window = max_context
        self._counter = EstimatedTokens()
        self.name = describe(target)
        self.fingerprint = f"python:{identity}" + (f":{max_context}" if max_context else "")
        self.lacks = set(Ability) - ({Ability.TEMPERATURE} if "temperature" in self._settings else set())
        self.about = (f"{self.name} is given {', '.join(['the prompt', *self._settings])}.",)

    def count_tokens(self, text: str) -> int:
        """Return an estimate of the number of tokens of a text."""
        return self._counter.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt: a call for each sample."""
        sampling, prompt, shortening = request.sampling, request.prompt, NOTHING_LEFT_OUT
        if self._window:
            prompt, shortening = fit(prompt, self._window - sampling.max_tokens, self._counter)
        prompt = spaced_prompt(prompt, COMMON_NAMES)  # a server behind it would read names as tokens
        texts = await asyncio.gather(*(self._ask(prompt, sampling, number) for number in range(sampling.n)))
        length, generated = self.count_tokens(prompt.text), sum(map(self.count_tokens, texts))
        usage = TokenUsage(1, length, generated, length, generated, length + generated)
        completions = tuple(_completion(text, prompt, sampling) for text in texts)
        return Generation(completions, usage, shortening)

    async def _ask(self, prompt: Prompt, sampling: Sampling, number: int) -> str:
        seed = None if sampling.seed is None else (sampling.seed + number) % 2**31
        # It is asked to write the reply's first words: what ends a reply may stand in them.
        prefix = prompt.prefix if self._takes_messages else ""
        values = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "seed": None if sampling.temperature == 0 else seed,
            "top_p": sampling.top_p,
            "stop": [each for each in sampling.stop if each not in prefix],
        }
        argument: Any = prompt.text
        if self._takes_messages:
            messages = [{"role": each.role, "content": each.text} for each in prompt.messages]
            argument = request_prefix(messages, prefix)
        text = await self._call(argument, **{name: values[name] for name in self._settings})
        if not isinstance(text, str):
            raise RequestRefusedError(f"{self.name} returned {text!r:.80}: return a text.")
        return text

    async def close(self) -> None:
        """End the thread in which it was called. The function is its owner's."""
        self._call.close()


def _completion(text: str, prompt: Prompt, sampling: Sampling) -> Completion:
    """Return a reply without the words that it was to begin with, ended at the first stop string."""
    text = text[repeated_length(text, prompt.prefix) :]
    ends = [position for each in sampling.stop if (position := text.find(each)) >= 0]
    return Completion(text[: min(ends, default=len(text))], (), "stop")
