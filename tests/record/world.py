"""A small world in which everything that a method may ask for has a reply.

A reply follows from the prompt and the seed alone, whatever the order of requests. What a prompt wants is
known by words in it (``replies`` in world.json: the first that fit), so that each method gets what it can
read, and now and then what it cannot.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from corag import Passage
from tests.fakes import ScriptedGenerator, WordRetriever

WORLD = json.loads(Path(__file__).with_name("world.json").read_text(encoding="utf-8"))
QUESTIONS: list[dict[str, Any]] = WORLD["questions"]
PASSAGES: list[Passage] = [Passage(*fields) for fields in WORLD["passages"]]
REFLECTION = (
    "[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]", "[Relevant]", "[Irrelevant]",
    "[Fully supported]", "[Partially supported]", "[No support / Contradictory]",
    *(f"[Utility:{number}]" for number in range(1, 6)),
)  # fmt: skip
WORDINGS = ("", "Tell me:", "In short:", "Please find out:", "Once more:")


def draw(*parts: object) -> int:
    """Return a number that depends on the parts alone."""
    return int(hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:12], 16)


def asked_hops(record: dict[str, Any]) -> list[dict[str, str]]:
    """Return a question's hops with the answers of those before in the place of their numbers."""
    hops: list[dict[str, str]] = []
    for hop in record["decomposition"]:
        answers = [each["answer"] for each in hops]
        text = re.sub(r"#(\d)", lambda match: answers[int(match[1]) - 1], hop["question"])  # noqa: B023
        hops.append(hop | {"question": text})
    return hops


HOPS = {record["id"]: asked_hops(record) for record in QUESTIONS}


def write_reply(text: str, seed: object) -> str:
    """Reply to a prompt: three times of four what brings the question on, or ends it once all is known."""
    number = draw(text, seed)
    asked = max(QUESTIONS, key=lambda record: text.rfind(record["question"]))
    hops, written = HOPS[asked["id"]], text[text.rfind(asked["question"]) :]
    done = sum(hop["answer"] in written for hop in hops)
    on_the_way = number % 4 > 0
    hop = hops[(done if on_the_way else number // 64) % len(hops)]
    known = max(
        (hop for every in HOPS.values() for hop in every), key=lambda hop: text.rfind(hop["question"])
    )
    steps = re.findall(r"(?:Thought|Action) (\d+)", text)
    going_on, *ending = next(forms for words, *forms in WORLD["replies"] if words in text)
    ends = ending[0] if ending else going_on
    forms = (going_on if done < len(hops) else ends) if on_the_way else going_on + ends
    return str(forms[number // 8 % len(forms)]).format(
        ask=hop["question"], answer=hop["answer"], says=hop["says"], final=asked["answers"][0],
        known=known["answer"], step=steps[-1] if steps else 1,
    )  # fmt: skip


def scripted_model() -> ScriptedGenerator:
    """Return a model of this world: its replies are cut at their token limits, its likelihoods vary."""

    def reply(request: Any) -> list[str]:
        seed, text = request.sampling.seed, request.prompt.text
        return [write_reply(text, (seed, number)) for number in range(request.sampling.n)]

    return ScriptedGenerator(
        reply,
        log_likelihood=lambda request: -0.02 - draw(request.prompt.text, request.target) % 1000 / 400,
        probability=lambda word: (draw(word) % 9 + 1) / 10,
        special=REFLECTION,
        cuts=True,
    )


def questions(count: int) -> list[dict[str, Any]]:
    """Return so many questions as records of a file: those of the world, then the same in other wordings."""
    records = []
    for number in range(count):
        record, again = QUESTIONS[number % len(QUESTIONS)], number // len(QUESTIONS)
        wording = {"id": f"{record['id']}-{again}", "question": f"{WORDINGS[again]} {record['question']}"}
        records.append(record | (wording if again else {}))
    return records


# What commands open by a file's name.
MODEL, INDEX = scripted_model(), WordRetriever(PASSAGES)
