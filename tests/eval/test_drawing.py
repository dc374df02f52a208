"""What 'corag ask' draws: nesting, scores, the chosen chain, model text as it is."""

import asyncio
import io
import re
from dataclasses import asdict, dataclass

import pytest
from rich.console import Console

from corag.chains.config import CoRAGConfig
from corag.cli.commands.ask import AskOptions, answer_and_show
from corag.core.prompting.prompt import Prompt
from corag.core.tools import Tools
from corag.core.types import Answer, Passage
from eval.api.ask import answer_one
from eval.api.drawing import draw_steps
from ircot.method import IRCoTConfig
from tests.chains.chains import LETTERS, queue, seeded, tree_model, tree_score
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind
from tests.story import QUESTION, WORLD

REFUSAL = "No relevant information found"


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch):
    """A terminal's size and colours are the test's, not the environment's."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self):
        return True


def ask(reply, *, method="corag", terminal=None, width=110, height=60, retriever=None, **options):
    """Run what 'corag ask' runs after its back ends are open; return what it wrote, and the answer."""
    score = options.pop("score", lambda request: -1.0)
    pause, question = options.pop("pause", None), options.pop("question", QUESTION.text)
    sections = (
        {"corag": CoRAGConfig(**(PROMPTS | options))} if method == "corag" else {method: options["config"]}
    )
    config = AskOptions(question=question, method=[method], **sections)
    console = Console(
        file=terminal or io.StringIO(), width=width, height=height, highlight=False, emoji=False, record=True
    )
    generator = ScriptedGenerator(reply, log_likelihood=score, pause=pause)
    retriever = retriever or WordRetriever(WORLD)
    found = asyncio.run(answer_and_show(method, question, config, console, generator, retriever))
    return console.export_text(), found


def drawn(written):
    """The lines of the drawing, which begins with the question and ends before the answer."""
    lines = written.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(QUESTION.text))
    end = next(number for number, line in enumerate(lines) if line.startswith("answer "))
    return lines[first:end]


def indent(lines, text):
    """How deep the one line with this text stands."""
    (line,) = [line for line in lines if text in line]
    return re.search(r"[^ │├└─]", line).start()


def test_greedy_is_one_chain_of_hops_with_the_answer_below():
    reply = queue(
        NEXT=["who wrote the glass orchard?", "where was mara velden born?", "zzz"],
        ANSWER=["Mara Velden", "no relevant information found."],
        FINAL=["The Issel."],
    )
    written, _ = ask(reply, max_hops=3)
    assert drawn(written) == [
        QUESTION.text,
        "├── question  search  the question  (3 passages)",
        "├── chain 1  stopped: length  ← chosen",
        "│   ├── hop 1  who wrote the glass orchard? → Mara Velden  (2 passages)",
        f"│   ├── hop 2  where was mara velden born? → {REFUSAL}  (2 passages)",
        f"│   └── hop 3  zzz → {REFUSAL}  (0 passages)",
        "└── final  The Issel.",
    ]
    answer, sources, cost = written.splitlines()[-3:]
    assert answer == "answer   The Issel"
    read = "Tarn Hollow; The Glass Orchard; Mara Velden; Glassware"  # the first two have the answers
    assert sources == f"sources  read: {read}"
    assert re.fullmatch(r"cost     6 calls, [\d,]+ tokens \([\d,]+ computed\), .* s; stopped: length", cost)


def test_a_computed_answer_names_the_rule_and_what_it_compared():
    replies = {
        "NEXT": ["when was mara velden born?", "when was tarn hollow born?"], "ANSWER": ["1913", "1893"]
    }  # fmt: skip
    question = "Who is older, Mara Velden or Tarn Hollow?"
    written, _ = ask(queue(**replies), question=question, max_hops=2, compare="rules")
    answer, rule, *_ = written.splitlines()[-4:]
    assert answer == "answer   Tarn Hollow"
    assert rule == "computed earlier birth: Mara Velden (1913), Tarn Hollow (1893)"


def test_sources_that_were_read_come_before_what_was_only_found():
    world = [Passage(f"p{n}", f"Rule {n}", f"river {word * 9}") for n, word in enumerate("ABCDEFGHIJ")]

    async def own(question, tools):
        hits = await tools.search("river", k=10)
        prompt = Prompt.of_text("\n".join(hits[n].passage.text for n in (7, 2, 5)))
        reply = await tools.generate(prompt, role="answer", max_tokens=9)
        return Answer(reply.text, tuple(hit.passage.id for hit in hits))

    retriever = WordRetriever(world)
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: "Thirty."), retriever)
    result = asyncio.run(answer_one("own", QUESTION, own, tools, retriever))
    assert [passage.id for passage in result.read] == ["p2", "p5", "p7"]
    assert result.sources[:4] == ("Rule 2", "Rule 5", "Rule 7", "Rule 0")
    line = result.ending()[1].plain
    assert line == "sources  read: Rule 2; Rule 5; Rule 7; found, not read: Rule 0; Rule 1; and 5 more"


def test_best_of_n_shows_each_chains_score_and_marks_the_chosen_one():
    scores = iter([-0.5, -3.25, -2.0])
    known = {}

    def score(request):
        return known.setdefault(request.prompt.text, next(scores, None))

    written, row = ask(seeded, strategy="best_of_n", chains=3, max_hops=2, score=score)
    lines = drawn(written)
    assert lines[0].endswith("(scores: lower is better)")
    chains = [line for line in lines if "chain " in line]
    for number, (line, chain) in enumerate(zip(chains, row.answer.chains, strict=True), 1):
        assert f"chain {number}  score {chain.score:.2f}  stopped: length" in line
        below = lines[lines.index(line) + 1 :][:2]
        assert [hop.sub_query in text for hop, text in zip(chain.hops, below, strict=True)] == [True, True]
    assert sorted(chain.score for chain in row.answer.chains) == [-3.25, -2.0, -0.5]
    assert [line.endswith("← chosen") for line in chains] == [
        chain.score == -3.25 for chain in row.answer.chains
    ]


def test_chains_stand_in_order_whichever_comes_first():
    async def pause(request):  # the first chain to ask is the last to be answered
        waits.append(len(waits))
        for _ in range(40 if waits[-1] % 3 == 0 else 1):
            await asyncio.sleep(0)

    waits = []
    written, _ = ask(seeded, strategy="best_of_n", chains=12, max_hops=2, pause=pause)
    names = re.findall(r"─ (chain \d+|hop \d+|question|final)", "\n".join(drawn(written)))
    assert names == [
        "question",
        *(name for n in range(1, 13) for name in (f"chain {n}", "hop 1", "hop 2")),
        "final",
    ]


TREE = {"strategy": "tree", "max_hops": 3, "expand": 3, "rollouts": 1, "rollout_hops": 1, "score": tree_score}


def tree_of(**options):
    return ask(tree_model, **(TREE | options), retriever=WordRetriever(LETTERS))


def test_a_tree_shows_states_with_their_value_and_rollouts_with_their_scores():
    written, row = tree_of(reuse=False)
    lines = drawn(written)
    below_a = lines[next(n for n, line in enumerate(lines) if "child 1  value -2.00  a → b" in line) :]
    order = [below_a.index(next(line for line in below_a if text in line)) for text in (
        "rollout 1  score -2.00", "hop 2  r → b", "child 1  value -2.00  b → b",
        "child 2  value -4.00  c → b",
        "child 1  value -4.00  b → b", "child 2  value -1.00  b → b",
    )]  # fmt: skip
    assert order == sorted(order), "rollouts, then the states below, then the state's siblings"
    depths = [indent(lines, text) for text in ("tree", "1  value -2.00  a", "2  value -4.00  c", "← chosen")]
    assert depths == [4, 8, 12, 16]
    assert row.answer.chains[row.answer.chosen].path == "tree/child 1/child 2/child 1"
    assert (
        next(line for line in lines if "← chosen" in line)
        .split("─ ")[1]
        .startswith("child 1  value -4.00  b → b")
    )
    assert len([line for line in lines if re.search(r"child \d", line)]) == len(row.answer.chains)


def test_model_text_is_never_markup_nor_a_command_to_the_terminal():
    reply = queue(
        NEXT=["is [red]glass[/red] \x1b[2Jred?", "[/nothing] sand"],
        ANSWER=["[red]x[/red]", ":heart: [/]\nmore"],
        FINAL=["[b]Issel"],
    )
    screen = Screen()
    written, _ = ask(reply, max_hops=2, terminal=screen, width=100)
    assert "\x1b[2J" not in screen.getvalue()  # "[2J" alone commands nothing
    shown = "\n".join(drawn(written)[-6:])
    assert "hop 1  is [red]glass[/red] [2Jred? → [red]x[/red]" in shown
    assert "hop 2  [/nothing] sand → :heart: [/] more" in shown and "final  [b]Issel" in shown


def test_repeated_sub_queries_are_told_from_hops():
    reply = {"NEXT": "glass orchard", "ANSWER": "a", "FINAL": "Issel"}
    written, _ = ask(lambda request: reply[kind(request)], max_hops=2)
    assert "hop 2  glass orchard  no hop: a repeat" in written
    assert "chain 1  stopped: repeats" in written


def test_what_another_method_calls_chosen_is_not_taken_for_a_chain():
    @dataclass(frozen=True, slots=True)
    class Own(Answer):
        chosen: str = "the shorter one"

    tree = draw_steps("Who?", (), asdict(Own("x")))
    assert str(tree.label) == "Who?" and not tree.children


def test_ircot_is_drawn_by_step():
    replies = iter(["Mara Velden wrote it.", "So the answer is: Issel.", "Issel"])
    written, _ = ask(lambda request: next(replies), method="ircot", config=IRCoTConfig(max_steps=3))
    lines = drawn(written)
    names = [re.sub(r"^[ │├└─]+", "", line).split("  ")[0] for line in lines[1:]]
    assert names == ["step 1", "search", "thought", "step 2", "search", "thought", "reader"]
    assert "search  'Mara Velden wrote it.'  (2 passages)" in "\n".join(lines)


def test_a_failed_question_leaves_what_was_drawn():
    retriever = WordRetriever(WORLD, failing="velden")
    reply = queue(NEXT=["glass orchard", "velden"], ANSWER=["a1"], FINAL=[])
    written, row = ask(reply, max_hops=2, terminal=Screen(), retriever=retriever)
    assert row.answer is None and "hop 1  glass orchard → a1" in written
    assert "failed: SearchFailedError" in written
