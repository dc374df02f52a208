"""Self-Ask replayed by hand: two follow-up questions, the cap, the early stop, and questions that no passage
answers.
"""

import pytest

from corag.baselines.self_ask import FollowUp, SelfAskConfig, SelfAskTurn, parse_turn, self_ask
from corag.core.tools import SearchStep
from tests.baselines import replaying
from tests.fakes import WindowedGenerator, WordRetriever, words
from tests.story import QUESTION, WORLD

WHO, WHERE = "Who wrote The Glass Orchard?", "Where was the writer Mara Velden born?"
SOLUTION = [
    f" Yes.\nFollow up: {WHO}\n",
    "Mara Velden.",
    f"Follow up: {WHERE}\nIntermediate answer: On Mars.",
    "Tarn Hollow",
    "So the final answer is: the Issel.",
]
HOPS = (
    f" Yes.\nFollow up: {WHO}\nIntermediate answer: Mara Velden.\n"
    f"Follow up: {WHERE}\nIntermediate answer: Tarn Hollow.\n"
)
BEGUN = "Are follow up questions needed here:"


async def replay(replies, config=None, *given, **named):
    return await replaying.replay(self_ask, config or SelfAskConfig(k=1), replies, *given, **named)


async def test_two_follow_up_questions_then_the_answer():
    answer, generator, tools = await replay(SOLUTION)
    assert (answer.text, answer.stopped, answer.steps) == ("the Issel", "answer", 2)
    assert answer.follow_ups == (
        FollowUp(WHO, "Mara Velden", ("the glass orchard",), unaided=False, repeated=False),
        FollowUp(WHERE, "Tarn Hollow", ("mara velden",), unaided=False, repeated=False),
    )
    assert answer.passage_ids == ("the glass orchard", "mara velden")
    assert [step.query for step in tools.steps if isinstance(step, SearchStep)] == [WHO, WHERE]
    # The transcript holds what the search told, not what the model made up, and goes on where it ended.
    first, reading, second, _, third = generator.prompts
    assert first.endswith(BEGUN) and third.endswith(BEGUN + HOPS)
    assert second.endswith(f"{BEGUN} Yes.\nFollow up: {WHO}\nIntermediate answer: Mara Velden.\n")
    assert "The Glass Orchard is a novel" in reading and WHO in reading and QUESTION.text not in reading
    assert "Intermediate answer:" in generator.requests[0].sampling.stop
    assert {role: usage.calls for role, usage in tools.ledger.items()} == {"follow_up": 3, "intermediate": 2}
    assert sum(usage.total for usage in tools.ledger.values()) == tools.spent.total > 0


async def test_no_follow_up_question_needed():
    answer, _, _ = await replay([" No.\nSo the final answer is: Issel.\n"])
    assert (answer.text, answer.stopped, answer.steps, answer.passage_ids) == ("Issel", "answer", 0, ())


async def test_the_cap_asks_for_the_final_answer():
    answer, generator, tools = await replay([*SOLUTION[:4], " Issel."], SelfAskConfig(k=1, max_follow_ups=2))
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "max_follow_ups", 2)
    assert generator.prompts[-1].endswith(f"{BEGUN}{HOPS}So the final answer is:")
    assert generator.requests[-1].sampling.stop == ("\n",)
    assert tools.ledger["forced_answer"].calls == 1 and tools.spent.calls == 5


async def test_a_malformed_reply_leads_to_the_final_answer():
    answer, generator, _ = await replay([" I have no idea", "Issel"])
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "malformed", 0)
    assert generator.prompts[-1].endswith(f"{BEGUN} No.\nSo the final answer is:")
    answer, generator, _ = await replay([*SOLUTION[:2], "", "Issel"])
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "malformed", 1)
    assert generator.prompts[-1].endswith("Intermediate answer: Mara Velden.\nSo the final answer is:")


@pytest.mark.parametrize("refusal", [[], ["No relevant information found."], [" "]])
async def test_where_no_passage_tells_the_model_answers_by_itself(refusal):
    retriever = WordRetriever(WORLD if refusal else [])
    replies = [SOLUTION[0], *refusal, " Mara Velden.", SOLUTION[-1]]
    answer, generator, tools = await replay(replies, retriever=retriever)
    (hop,) = answer.follow_ups
    assert (hop.answer, hop.unaided, len(hop.passage_ids)) == ("Mara Velden", True, len(refusal))
    assert generator.prompts[-2].endswith(f"{BEGUN} Yes.\nFollow up: {WHO}\nIntermediate answer:")
    assert tools.ledger["unaided"].calls == 1 and ("intermediate" in tools.ledger) == bool(refusal)
    assert answer.text == "the Issel"


async def test_nobody_knows():
    replies = [SOLUTION[0], "", SOLUTION[-1]]
    answer, generator, _ = await replay(replies, retriever=WordRetriever([]))
    assert answer.follow_ups[0].answer == "No relevant information found"
    assert generator.prompts[-1].endswith("Intermediate answer: No relevant information found.\n")


async def test_a_repeated_question_is_noted():
    replies = [*SOLUTION[:2], f"Follow up: {WHO.lower()}", "Mara", SOLUTION[-1]]
    answer, _, _ = await replay(replies)
    assert [hop.repeated for hop in answer.follow_ups] == [False, True]


def solve(request):
    """Reply by the place in the transcript, so that any budget can be tried."""
    prompt = request.prompt.text
    if prompt.endswith("So the final answer is:"):
        return "Issel"
    if prompt.endswith("Answer:"):
        return "Mara Velden." if WHO in prompt else "Tarn Hollow"
    return SOLUTION[2 * prompt.split("Question: ")[-1].count("Follow up:")]


async def test_the_final_answer_is_asked_for_with_the_newest_questions_for_which_the_window_has_room():
    config = SelfAskConfig(k=1, max_follow_ups=2, max_answer_tokens=100)
    _, whole, _ = await replay(solve, config)
    window = words(whole.prompts[-1]) + 99
    answer, generator, _ = await replay([], config, generator=WindowedGenerator(solve, window))
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "max_follow_ups", 2)
    forced = [prompt for prompt in generator.prompts if prompt.endswith("So the final answer is:")]
    assert [(WHO in prompt, WHERE in prompt) for prompt in forced] == [(True, True), (False, True)]
    # If the question is too long by itself, it is asked as far as it fits.
    answer, generator, _ = await replay([], config, generator=WindowedGenerator(solve, window - 60))
    assert answer.text == "Issel" and generator.prompts[-1].endswith(f"{BEGUN} No.\nSo the final answer is:")


EXAMPLES = [
    f"Question: Example {number}?\n{BEGUN} Yes.\nFollow up: What is {number}?\nIntermediate answer: One "
    "more.\n"
    f"So the final answer is: {number}"
    for number in range(1, 6)
]


async def test_paper_layout_byte_for_byte(tmp_path):
    file = tmp_path / "examples.txt"
    file.write_text("\n\n".join(EXAMPLES) + "\n")
    config = SelfAskConfig(preset="paper", demonstrations=str(file), k=1)
    _, generator, _ = await replay(SOLUTION, config)
    before = "\n\n".join(EXAMPLES[:4]) + f"\n\nQuestion: {QUESTION.text}\n{BEGUN}"
    assert generator.prompts[0] == before and generator.requests[0].prompt.plain
    assert generator.prompts[-1] == (before + HOPS).rstrip()
    segments = generator.requests[-1].prompt.messages[0].segments
    drops = [segment.drop for segment in segments if segment.drop is not None]
    assert drops == sorted(drops) and len(drops) == 6, "examples are left out before hops"
    assert generator.requests[0].sampling.max_tokens == 256


@pytest.mark.parametrize(
    ("reply", "turn"),
    [
        (" Yes.\nFollow up: Who wrote Emma?\nFollow up: When?", SelfAskTurn(follow_up="Who wrote Emma?")),
        (" Yes. **Follow-up question 1:** Who?", SelfAskTurn(follow_up="Who?")),
        ('follow up: "Who?" Intermediate answer: Bob', SelfAskTurn(follow_up="Who?")),
        ("Follow up:\nWho?", SelfAskTurn(follow_up="Who?")),
        ("Follow up: Who? So the final answer is: Bob", SelfAskTurn(follow_up="Who?")),
        (" No.\nSo the final answer is: The Issel.\nQuestion: more", SelfAskTurn(answer="The Issel")),
        ("So the final answer is Issel", SelfAskTurn(answer="Issel")),
        ("Final answer: **Issel**", SelfAskTurn(answer="Issel")),
        ("So the final answer is:", SelfAskTurn()),
        ("Intermediate answer: Bob\nFollow up: Who?", SelfAskTurn()),
        ("Are follow up questions needed here: Yes.", SelfAskTurn()),
        ("The final answer depends on the writer.", SelfAskTurn()),
        ("", SelfAskTurn()),
    ],
)
def test_parsing(reply, turn):
    assert parse_turn(reply) == turn


@pytest.mark.parametrize(
    "reply",
    ["Mara Velden.\nQuestion: Who wrote it?\nAnswer: Mara", "It was she. The answer is: Mara Velden."],
)
async def test_a_reader_that_goes_on_is_read_as_any_reader(reply):
    answer, generator, _ = await replay([SOLUTION[0], reply, *SOLUTION[2:]])
    assert answer.follow_ups[0].answer == "Mara Velden"
    assert generator.prompts[2].endswith(f"Follow up: {WHO}\nIntermediate answer: Mara Velden.\n")


@pytest.mark.parametrize(
    "refusal",
    ["No relevant information found.\nThe answer is: Mars", "The answer is: No relevant information found"],
)
async def test_a_refusal_is_one_whatever_stands_around_it(refusal):
    answer, _, _ = await replay([SOLUTION[0], refusal, "Mara Velden", "So the final answer is: the Issel."])
    assert [(hop.answer, hop.unaided) for hop in answer.follow_ups] == [("Mara Velden", True)]
