"""Run folders for tests of the report, and a report read back.

The folders are of the real methods over a world's questions, with a model and an index that know the answers.

Both fail now and then, by hashes of what they are asked, so that runs differ, hops are refused and some
questions go wrong.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import orjson

from corag.baselines.one_step import OneStepConfig
from corag.chains.config import CoRAGConfig
from corag.cli.main import main
from corag.core.errors import SearchFailedError
from corag.core.runs.folder import read_lines, write_run
from corag.core.runs.manifest import Manifest
from corag.core.seeds import stable_hash
from corag.core.types import Hit, Passage, Question
from eval.datasets.sets.jsonl import question_record
from eval.datasets.world import generate
from eval.experiment.executor import LocalExecutor
from eval.experiment.run import RunConfig, answer_with
from ircot.method import IRCoTConfig
from tests.eval.runs import make_run, row
from tests.fakes import PROMPTS, ScriptedGenerator, kind

REFUSAL = "No relevant information found"
WORDINGS = ("", "Tell me: ", "Please find out: ", "In short: ", "It matters a lot: ", "One more thing: ")
EVIL = "<script>alert(1)</script>"

READER = "FINAL {query}\n{paragraphs}"
THOUGHT = "THINK {query}\n{paragraphs}\n{cot_history}"


def corag(**options):
    """CoRAG's options with prompts that the scripted model understands."""
    return CoRAGConfig(**(PROMPTS | {"search_depth": 8, "context_passages": 8} | options))


METHODS = {
    "one_step": OneStepConfig(qa_prompt=READER, k=8, strip_question_words=False),
    "ircot": IRCoTConfig(qa_prompt=READER, reasoning_prompt=THOUGHT, strip_question_words=False),
    "greedy": corag(max_hops=3),
    "best_of_4": corag(strategy="best_of_n", chains=4, max_hops=4),
    "tree": corag(strategy="tree", expand=3, max_hops=4),
}


def chance(*parts):
    """A number from 0 to 1 that depends on the parts alone."""
    return int(stable_hash("|".join(map(str, parts)))[:8], 16) / 16**8


class World:
    """Questions of a generated world with its passages.

    An index that knows what they ask, and models that do.
    """

    fingerprint = "world"

    def __init__(self, folder, questions):
        provinces = list(generate(passages=500, train=0, dev=0, test=questions))
        asked = [question for province in provinces for question in province.questions]
        asked[1] = replace(asked[1], text=f"{EVIL} {asked[1].text}")
        self.questions = asked
        self.pages = {passage.id: passage for province in provinces for passage in province.passages}
        for name in asked[1].supporting:
            self.pages[name] = Passage(
                name, f"{EVIL} {self.pages[name].title}", f"</script>{EVIL} {self.pages[name].text}"
            )
        self._ids = list(self.pages)
        self._by_text = {question.text: question for question in asked}
        self._hops = {hop.question: hop for question in asked for hop in question.decomposition}
        self.file = folder / "test.jsonl"
        self.file.write_text("".join(json.dumps(question_record(question)) + "\n" for question in asked))

    def model(self, skill):
        """Return a model that is right about as often as ``skill`` says."""

        def reply(request):
            first, _, rest = request.prompt.text.partition("\n")
            asked = first.partition(" ")[2].removeprefix("for ")
            if kind(request) == "ANSWER":
                hop = self._hops.get(asked.rpartition(": ")[2])
                return hop.answer if hop and chance(skill, asked) < 0.4 + skill / 2 else f"{REFUSAL}."
            question = self._by_text[asked]
            hops = question.decomposition
            if kind(request) == "NEXT":
                done = sum(line[:1].isdigit() for line in rest.splitlines())
                wanted = (
                    hops[done].question
                    if done < len(hops)
                    else f"What else is told of {hops[-1].answer}, part {done}?"
                )
                if request.sampling.temperature and request.sampling.n == 1:
                    return WORDINGS[request.sampling.seed % 2] + wanted
                return [wording + wanted for wording in WORDINGS[: request.sampling.n]]
            lucky = chance(skill, asked, rest.count("\n")) < skill
            answer = question.answers[0] if lucky else hops[0].answer
            if kind(request) == "THINK":
                done = rest.count("it is known that")
                hop = hops[min(done, len(hops) - 1)]
                known = f"As for hop {done + 1}, it is known that {hop.answer} is meant."
                return known if done < len(hops) else f"So the answer is: {answer}."
            return answer

        return ScriptedGenerator(reply, log_likelihood=lambda request: -4 * chance(request.prompt.text))

    async def search(self, query, k, hop=False):
        """The passage of a known sub-question, or one of a question's own, among others."""
        if chance("failing", query) < (0.03 if query in self._by_text else 0.001):
            raise SearchFailedError(f"the search for '{query}' failed: the index did not reply.")
        hop, question = self._hops.get(query.rpartition(": ")[2]), self._by_text.get(query)
        gold = [hop.passage_id] if hop else list(question.supporting[:1]) if question else []
        place, start = int(chance("place", query) * 3), int(chance("noise", query) * (len(self._ids) - k))
        noise = [name for name in self._ids[start : start + k] if name not in gold]
        ids = [*noise[:place], *gold, *noise[place:]][:k]
        return [
            Hit(self.pages[name], 20 - 0.7 * rank - chance(query, rank) / 2) for rank, name in enumerate(ids)
        ]

    async def passages(self, ids):
        return [self.pages[name] for name in ids if name in self.pages]

    async def close(self):
        return None


def write(out, name, world, skill=0.5):
    """Answer the world's questions with one of ``METHODS`` into a run folder, as 'corag run' does, and return
    the folder.
    """
    options = METHODS[name]
    method = {OneStepConfig: "one_step", IRCoTConfig: "ircot", CoRAGConfig: "corag"}[type(options)]
    with contextlib.chdir(world.file.parent):
        config = RunConfig(questions=world.file.name, method=[method], out=str(out), **{method: options})
        return asyncio.run(
            answer_with(config, method, world.questions, LocalExecutor(world.model(skill), world), cell=name)
        )


def multiply(folder, copies):
    """Give a run so many times its questions: copies that say so in id and text."""
    lines = [line.text for line in read_lines(folder).values()]

    def copy(text, number):
        record = orjson.loads(text)
        record["id"] = record["question"]["id"] = f"{record['id']} copy {number}"
        record["question"]["text"] += f" (copy {number})"
        return orjson.dumps(record) + b"\n"

    every = [*lines, *(copy(text, number) for number in range(2, copies + 1) for text in lines)]
    write_run(folder, Manifest.read(folder), every)


def kilt_report(folder):
    """The report on two runs, one of which failed, on a question with gold pages and one with a gold
    passage.
    """
    asked = Question(
        "7", "Ada was born in Orvale.", ("SUPPORTS",), ("290", "17", "4"), pages=(("290", "17"), ("4",))
    )
    plain = Question("8", "Ben was born in Orvale.", ("REFUTES",), ("290-3",))
    found = [
        row(asked, "SUPPORTS", ["5-1", "5-2", "290-3", "290-5", "17#0"]),
        row(plain, "REFUTES", ["290-3", "290-5"]),
    ]
    failed = [row(asked, None), row(plain, None)]
    runs = [
        make_run(folder / name, rows, {"seed": len(name)})
        for name, rows in (("found", found), ("failed", failed))
    ]
    out = folder / "report.html"
    assert main(["table", *map(str, runs), "--report", str(out)]) in (0, 1)
    return out


class Page:
    """A report read back as a browser would; what needs no script is in ``main``."""

    def __init__(self, file):
        self.text = file.read_text(encoding="utf-8")
        self.elements = dict(
            re.findall(
                r'<script type="application/[\w-]+" id="([\w-]+)">(.*?)</script>', self.text, re.DOTALL
            )
        )
        shown = self.text.partition("<main>")[2].partition('<section id="questions"')[0]
        self.main = ElementTree.fromstring(f"<main>{shown}</main>")
        self.report = json.loads(self.elements["report"])
        self.run_names = self.report["runs"]
        self.index = self.block("index")

    def block(self, name):
        return json.loads(gzip.decompress(base64.b64decode(self.elements[name])))

    @property
    def ids(self):
        """The ids of passages by their numbers."""
        return [name for name, _ in self.block("passages")]

    def gold(self, question):
        return self.index["gold"][self.index["ids"].index(question)]

    def trace(self, run, question):
        place, size = self.index["ids"].index(question), self.report["questions_per_block"]
        return self.block(f"run-{self.run_names.index(run)}-{place // size}")[place % size]

    @property
    def headlines(self):
        """The verdict and what stands below it."""
        return [text(each) for each in self.main.findall("section[@class='intro']/p")]

    @property
    def remarks(self):
        return [text(each) for each in self.main.findall(".//ul[@class='remarks']/li")]

    def rows(self, place):
        """The first table of a section, or of what is folded under a title: rows of texts, heads first."""
        found = self.main.find(f".//section[@id='{place}']")
        if found is None:
            found = self.fold(place)
        return [[text(cell) for cell in row] for row in found.find(".//table").iter("tr")]

    def fold(self, title):
        """What is folded under a title."""
        (found,) = (each for each in self.main.iter("details") if text(each.find("summary")) == title)
        return found


def text(element):
    """The words of an element."""
    return " ".join("".join(element.itertext()).split())
