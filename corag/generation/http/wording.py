"""How a server wants to be asked: parameters that it calls otherwise, or refuses.

OpenAI's newer models take ``max_completion_tokens`` in the place of ``max_tokens``, and no temperature but
their own; gateways refuse further settings. Each says so with status 400 or 422 and names the parameter. Then
the request is sent once more as the server wants it, which is remembered for all that follow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REFUSALS = frozenset({400, 422})
# Without one of these a reply is what was asked for, or is cut to it here. Never the prompt, the number of
# samples, a bias or log-probabilities: a method reads those.
_MAY_GO = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "repetition_penalty", "repeat_penalty",
    "skip_special_tokens",
)  # fmt: skip
# While a server is opened, what it refuses of the rest is a feature that it lacks.
_MAY_GO_OPENING = ("temperature",)
# A model that thinks used up the few tokens of a probe before its reply began.
_TOO_FEW = re.compile(r"higher max_tokens|output limit was reached|below minimum value", re.IGNORECASE)
_OPENING_TOKENS = 1_024
_NEWER_LIMIT = "max_completion_tokens"
_REFUSES = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not (?:permitted|allowed|available)|extra|cannot both|"
    r"deprecated|only the default|invalid (?:parameter|argument|field)|additional propert",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Wording:
    """What one server takes otherwise than others.

    Attributes:
        renamed: the server's name of a parameter, by OpenAI's older one.
        omitted: parameters that the server refuses.
        opening: whether the server is being opened, with requests of a few tokens.
        least_tokens: fewest tokens that such a request has; 0 for as few as it asks for.
    """

    new_names: dict[str, str] = field(default_factory=dict)
    omitted_fields: set[str] = field(default_factory=set)
    opening: bool = False
    least_tokens: int = 0

    def after_opening(self) -> Wording:
        """Return what was learned while the server was opened, for all requests from then on."""
        return Wording(self.new_names, self.omitted_fields)

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body as the server wants it."""
        adapted_body = {
            self.new_names.get(name, name): value
            for name, value in body.items()
            if name not in self.omitted_fields
        }
        limit = self.new_names.get("max_tokens", "max_tokens")
        if limit in adapted_body:
            adapted_body[limit] = max(adapted_body[limit], self.least_tokens)
        return adapted_body

    def learn(self, status: int, error: Any, body: Mapping[str, Any], url: str) -> bool:
        """Note what a refusal is about. Return whether the request is worth another attempt.

        Args:
            status: the reply's status.
            error: the reply, parsed from JSON or as text.
            body: what was sent, before :meth:`adapt`.
            url: the server's address, for the notice.
        """
        if status not in REFUSALS:
            return False
        parameters, message = read_refusal(error)
        if "max_tokens" in body and "max_tokens" not in self.new_names and _NEWER_LIMIT in message:
            self.new_names["max_tokens"] = _NEWER_LIMIT
            return True
        if self.opening and not self.least_tokens and "max_tokens" in body and _TOO_FEW.search(message):
            self.least_tokens = _OPENING_TOKENS
            return True
        if not _REFUSES.search(message):  # a value out of bounds, say
            return False
        may_go = _MAY_GO_OPENING if self.opening else _MAY_GO
        names_in_body = [name for name in may_go if name in body]
        refused_names = [name for name in names_in_body if name in parameters]
        if not refused_names:
            refused_names = [name for name in names_in_body if re.search(rf"\b{name}\b", message)]
            # "cannot both be specified": the temperature matters.
            if {"temperature", "top_p"} <= set(refused_names):
                refused_names = ["top_p"]
        refused_names = [name for name in refused_names if name not in self.omitted_fields]
        for name in refused_names:
            self.omitted_fields.add(name)
            _notify(f"{url} takes no {name} for this model, so its own holds.")
        return bool(refused_names)


def read_refusal(error: Any) -> tuple[frozenset[str], str]:
    """Return the parameters that a refusal names, and its message with its code.

    OpenAI and most gateways have ``error.param``; FastAPI's servers have ``detail`` with the place of each.

    >>> read_refusal({"error": {"message": "Unsupported value", "param": "temperature"}})
    (frozenset({'temperature'}), 'Unsupported value')
    """
    if not isinstance(error, dict):
        return frozenset(), str(error)
    inner = error.get("error", error)
    if not isinstance(inner, dict):
        return frozenset(), str(inner)
    parameters = {str(inner["param"])} if inner.get("param") else set()
    detail = inner.get("detail", error.get("detail"))
    for each in detail if isinstance(detail, list) else ():
        location = each.get("loc") if isinstance(each, dict) else None
        if isinstance(location, list) and location:
            parameters.add(str(location[-1]))
    text = str(inner.get("message") or detail or inner)
    return frozenset(parameters), " ".join(filter(None, (text, str(inner.get("code") or ""))))


def _notify(line: str) -> None:
    sys.stderr.write(f"corag: {line}\n")
    sys.stderr.flush()
