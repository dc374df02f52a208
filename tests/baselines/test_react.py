"""ReAct replayed by hand: three steps, the cap, the early stop, replies that no parser likes, and lookups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.baselines.react import Library, ReActConfig, parse_move, react, sentences
from corag.core.tools import SearchStep
from corag.core.types import Hit
from tests.baselines import replaying
from tests.fakes import WordRetriever, passage
from tests.story import AUTHOR, BOOK, NOISE, QUESTION, TOWN

SOLUTION = [
    " I need the author.\nAction 1: search[The Glass Orchard]\n",
    " Mara Velden wrote it. Where was she born?\nAction 2: Search[writer Mara Velden]\nObservation 2: She "
    "was born on Mars.",
    " Tarn Hollow. Its river?\nAction 3: lookup[river]",
    " Nothing yet.\nAction 4: search(river at Tarn Hollow)",
    " So it is the Issel.\nAction 5: finish[the Issel]",
]


async def replay(replies, config=None, *given, **named):
    return await replaying.replay(react, config or ReActConfig(k=1), replies, *given, **named)


async def test_five_steps_to_the_answer():
    answer, generator, tools = await replay(SOLUTION)
    assert (answer.text, answer.stopped, answer.steps) == ("the Issel", "finish", 5)
    assert (answer.calls, answer.searches, answer.bad_parses) == (5, 3, 0)
    assert answer.passage_ids == ("the glass orchard", "mara velden", "tarn hollow")
    queries = [step.query for step in tools.steps if isinstance(step, SearchStep)]
    assert queries == ["The Glass Orchard", "writer Mara Velden", "river at Tarn Hollow"]
    assert [step.action for step in answer.trajectory][2:4] == [
        "lookup[river]",
        "search[river at Tarn Hollow]",
    ]
    assert answer.trajectory[2].observation == "No sentence with 'river' in what was found so far."
    # The next prompt goes on where the transcript is, with the real observation and not the one that the
    # model made up.
    assert "Mars" not in generator.prompts[2] and generator.prompts[2].endswith("Thought 3:")
    assert (
        "Thought 2: Mara Velden wrote it. Where was she born?\nAction 2: search[writer Mara Velden]\n"
        f"Observation 2: [2] Mara Velden: {AUTHOR.text}\n"
    ) in generator.prompts[2], "passages are numbered through"
    assert generator.requests[0].sampling.stop == ("Observation 1:", "Observation:")
    assert set(tools.ledger) == {"step"} and tools.ledger["step"] == tools.spent
    assert tools.spent.calls == len(generator.requests) == 5


async def test_the_cap_forces_an_answer_and_the_default_is_seven_steps():
    wander = [f" Hm.\nAction: search[glass {number}]" for number in range(9)]
    answer, generator, tools = await replay([*wander[:3], "Issel."], ReActConfig(k=1, max_steps=3))
    assert (answer.text, answer.stopped, answer.steps, answer.calls) == ("Issel", "max_steps", 3, 4)
    assert generator.prompts[-1].endswith("Action 4: finish[") and "]" in generator.requests[-1].sampling.stop
    assert tools.ledger["forced_answer"].calls == 1
    answer, _, _ = await replay([*wander[:7], "Issel"])
    assert (answer.stopped, answer.steps, answer.searches) == ("max_steps", 7, 7)


async def test_finishing_at_once_searches_nothing():
    answer, _, _ = await replay([" I know.\nAction 1: finish[[Issel]]"])
    assert (answer.text, answer.stopped, answer.steps, answer.searches) == ("Issel", "finish", 1, 0)
    assert answer.passage_ids == ()


async def test_a_reply_without_an_action_is_the_answer():
    answer, _, _ = await replay([SOLUTION[0], " The river there is the Issel.\nSo the answer is: Issel."])
    assert (answer.text, answer.stopped, answer.steps, answer.bad_parses) == ("Issel", "unparsable", 2, 1)
    answer, _, _ = await replay(["The Issel"])
    assert (answer.text, answer.stopped) == ("The Issel", "unparsable")
    answer, _, _ = await replay(["The author is Mara Velden.\n\nHer birthplace lies on\nthe Issel."])
    assert answer.text == "The author is Mara Velden. Her birthplace lies on the Issel", (
        "no line of it is lost"
    )
    answer, _, _ = await replay(["Mara Velden wrote it.\nSo the answer is: Issel.\nI am sure."])
    assert answer.text == "Issel", "but a stated answer is the answer"
    answer, _, _ = await replay(["  ", "Issel"])
    assert (answer.text, answer.stopped, answer.calls) == ("Issel", "unparsable", 2), (
        "nothing said is no answer"
    )


async def test_a_lookup_shows_sentences_of_all_passages_with_their_numbers_and_the_next_one_goes_on():
    part = passage("Glass Parts", " ".join(f"Glass has part {number}." for number in range(1, 7)))
    calls = ["Action: search[Orchard]", "Action: search[glass part]", *["Action: lookup[part]"] * 3]
    answer, generator, _ = await replay(
        [*calls, "Action: finish[6]"], ReActConfig(k=2), WordRetriever([BOOK, part, NOISE])
    )
    observed = [step.observation for step in answer.trajectory]
    assert observed[0].startswith("[1] The Glass Orchard: ") and observed[1].startswith(
        "[2] Glass Parts: Glass has part 1."
    )
    assert observed[2] == "(Results 1 to 5 / 6)\n" + "\n".join(
        f"[2] Glass Parts, sentence {number}: Glass has part {number}." for number in range(1, 6)
    )
    assert observed[3:5] == [
        "(Result 6 / 6) [2] Glass Parts, sentence 6: Glass has part 6.",
        "No more results.",
    ]
    assert f"Observation 3: {observed[2]}\n" in generator.prompts[-1]


async def test_actions_that_do_not_exist_and_repeated_ones_are_noted():
    calls = [
        "Action: calculate[3 + 4]",
        "Action: search[Glass]",
        "Action: search[Glass]",
        "Action: think[hm]",
    ]
    answer, _, _ = await replay([*calls, "Action: finish[7]"])
    assert answer.trajectory[0].observation.startswith("Invalid action: calculate[3 + 4].")
    assert [step.repeated for step in answer.trajectory] == [False, False, True, False, False]
    assert (answer.searches, answer.bad_parses, answer.text) == (2, 0, "7")


# Preset "paper"

EXAMPLES = "\n".join(
    f"Question: Example {number}?\nThought 1: Easy.\nAction 1: Finish[{number}]\n" for number in range(1, 9)
)


@pytest.fixture
def paper(tmp_path):
    file = tmp_path / "examples.txt"
    file.write_text(EXAMPLES)
    return ReActConfig(preset="paper", demonstrations=str(file))


async def test_paper_layout(paper):
    _, generator, _ = await replay([SOLUTION[0], SOLUTION[-1]], paper)
    first, second = generator.prompts
    assert generator.requests[0].prompt.plain
    asked = f"Question: {QUESTION.text}\n"
    examples = "".join(
        f"Question: Example {number}?\nThought 1: Easy.\nAction 1: Finish[{number}]\n"
        for number in range(1, 7)
    )
    assert first.endswith(f"follow.\n{examples}{asked}Thought 1:")
    assert second == first + (
        " I need the author.\nAction 1: search[The Glass Orchard]\n"
        f"Observation 1: The Glass Orchard: {BOOK.text}\nThought 2:"
    )
    segments = generator.requests[1].prompt.messages[0].segments
    dropped = sorted(
        (segment for segment in segments if segment.drop is not None), key=lambda segment: segment.drop
    )
    assert [segment.kind for segment in dropped] == ["demonstration"] * 6 + ["hop"]
    assert [example.text[:19] for example in dropped[:6]] == [
        f"Question: Example {number}" for number in range(1, 7)
    ]


async def test_paper_asks_again_for_the_action_and_leaves_the_answer_empty(paper):
    answer, generator, tools = await replay(
        [" I think so.\nNo action here.", " Search[Mara Velden]", SOLUTION[-1]], paper
    )
    assert generator.prompts[1].endswith("Thought 1: I think so.\nAction 1:")
    assert generator.requests[1].sampling.stop == ("\n",) and tools.ledger["action"].calls >= 1
    assert answer.trajectory[0].action == "search[Mara Velden]"


async def test_paper_has_seven_steps_and_no_forced_answer(paper):
    replies = [" Hm.", " nothing"] * 7
    answer, generator, _ = await replay(replies, paper)
    assert (answer.text, answer.stopped, answer.steps) == ("", "max_steps", 7)
    assert (answer.calls, answer.bad_parses, answer.searches) == (14, 7, 0)
    assert (
        "Thought 1: Hm.\nAction 1: nothing\nObservation 1: Invalid action: nothing." in generator.prompts[-1]
    )


async def test_paper_shows_five_sentences_of_one_passage(paper):
    long = passage("Glass Orchard", " ".join(f"The glass has part {number}." for number in range(1, 8)))
    answer, _, _ = await replay(
        [
            "Action 1: Search[glass orchard]",
            *(f"Action {n}: Lookup[glass]" for n in (2, 3)),
            "Action 4: Finish[7]",
        ],
        paper,
        WordRetriever([long, NOISE]),
    )
    assert answer.passage_ids == (long.id,)
    assert answer.trajectory[0].observation.endswith("part 4. The glass has part 5.")
    assert [step.observation for step in answer.trajectory[1:3]] == [
        "(Result 1 / 7) Glass Orchard: The glass has part 1.",
        "(Result 2 / 7) Glass Orchard: The glass has part 2.",
    ]


# Parsing and looking up


@pytest.mark.parametrize(
    ("reply", "name", "argument"),
    [
        ("Thought 1: x\nAction 1: Search[The Glass Orchard (novel)]", "search", "The Glass Orchard (novel)"),
        ("Action: search(Mara (writer))", "search", "Mara (writer)"),
        ("Action: finish[[Issel]]", "finish", "Issel"),
        ('Action:\nfinish["Issel"]', "finish", "Issel"),
        ("Action: search[a], search[b]", "search", "a"),
        ("search[a]\nAction: finish[b]", "search", "a"),
        ("Action: finish[A [b] C] now", "finish", "A [b] C"),
        ("Action: search[Google Search (company)]", "search", "Google Search (company)"),
        ("Action: finish(The Search (film))", "finish", "The Search (film)"),
        ("Action: search[The [long] Search (film)]", "search", "The [long] Search (film)"),
        ("Action: finish[[The Search (film)]] lookup[b]", "finish", "The Search (film)"),
        ("hm.\n**Action 2:** `finish[Issel]`", "finish", "Issel"),
        ("Action: finish[Issel", "finish", "Issel"),
        ("I should search[Oslo] now", "search", "Oslo"),
        ("Action: finish[]", "finish", ""),
        ("Action: browse[x]", "browse", "x"),
        ("The best action: to look it up.\nAction 1: search[Oslo]", "search", "Oslo"),
        ("My next action: ask for the town. I will lookup[town]", "lookup", "town"),
        ("Action: none yet\nThe action: unclear.\nfinish(Oslo)", "finish", "Oslo"),
        ("We must search (the web).", "", ""),
        ("Action: Search for it", "", ""),
        ("Let me see.\nObservation: Oslo.\nAction: finish[Oslo]", "", ""),
        ("Finish: Oslo", "", ""),
        ("Action:", "", ""),
        ("", "", ""),
    ],
)
def test_parsing(reply, name, argument):
    move = parse_move(reply)
    assert (move.name, move.argument) == (name, argument)


def test_the_word_action_in_a_thought_stays_there():
    move = parse_move("Thought 1: The best action: to look it up.\nAction 1: search[Oslo]")
    assert move.thought == "The best action: to look it up."


plain_words = st.text("abc é,.'-(1)", min_size=1).map(lambda text: " ".join(text.split())).filter(bool)


@given(plain_words, st.sampled_from(["search", "lookup", "finish"]), plain_words, st.booleans())
def test_what_is_written_in_the_format_is_read_back(thought, name, argument, numbered):
    label = "Action 3:" if numbered else "Action:"
    read = parse_move(f" {thought}\n{label} {name.title()}[{argument}]\nObservation 3: {argument}")
    assert (read.thought, read.name) == (thought, name)
    assert read.argument == argument or argument[0] + argument[-1] == "''"


def hits(*passages):
    return [Hit(found, 1.0) for found in passages]


def looked_up(library, term, limit=1):
    said, found = library.look_up(term, limit)
    return said.strip(), [
        f"[{shown['place']}] {shown['title']}{shown['sentence']}: {shown['text']}" for shown in found
    ]


def test_lookups_go_over_all_documents_and_advance():
    library = Library()
    assert looked_up(library, "Mara")[0].startswith("No sentence")
    library.add(hits(BOOK, NOISE), 5)
    again = library.add(hits(AUTHOR, BOOK), 5)
    assert [shown["place"] for shown in again] == ["3", "1"], "a passage keeps its number"
    book = f"[1] The Glass Orchard, sentence 1: {BOOK.text}"
    author = f"[3] Mara Velden, sentence 1: {AUTHOR.text}"
    assert looked_up(library, "Mara Velden") == ("(Result 1 / 2)", [book])
    assert looked_up(library, " mara velden") == ("(Result 2 / 2)", [author])
    assert looked_up(library, "mara velden") == looked_up(library, "mara velden") == ("No more results.", [])
    assert looked_up(library, "sand") == ("(Result 1 / 1)", [f"[2] Glassware, sentence 1: {NOISE.text}"])
    assert looked_up(library, "Mara Velden", 9) == ("(Results 1 to 2 / 2)", [book, author]), (
        "another term starts again"
    )
    library.add(hits(TOWN), 5)
    assert looked_up(library, "Mara Velden")[0] == "(Result 1 / 2)", "so does a search"
    assert looked_up(library, "")[0].startswith("No sentence")
    assert library.ids == ("the glass orchard", "glassware", "mara velden", "tarn hollow")


@given(st.text('ab. A!?\n"', max_size=40))
def test_sentences_lose_nothing_but_white_space(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
