"""Training rows ask what decoding asks, to the byte, and are written and read back with the right tokens
masked.
"""

import asyncio
import typing
from dataclasses import replace

import pytest

from corag.chains.chain import Hop
from corag.chains.method import corag
from corag.chains.prompting import continuation
from corag.core.errors import ConfigError, DataError
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import ScoreRequest
from corag.core.tools import GenerateStep, Tools
from corag.generation.rendering import Renderer
from corag.generation.thinking import ThinkingOptions
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, chat_prompt
from tests.messages import raises_message
from tests.thinking_model import HYBRID, SUB_QUERY, thinking_tokenizer
from tests.training.toy import ALL, BY_ID, CORAG, QUESTION, REFUSAL, WORLD, examples_of
from tests.vocabularies import ALL_FAMILIES, renderer_of
from training import row_tasks
from training.chains import ChainRow
from training.data import RowsConfig, is_validation, tokenise
from training.row_tasks import RowTask, TrainingExample, best_stop_hop
from training.sampling import SampledChain

ROLES = {
    "sub_query": "sub_query",
    "sub_answer": "sub_answer",
    "final": "final_answer",
    "stop_check": "stop",
    "draft": "draft",
}


class Counting(ScriptedGenerator):
    """Counts as the real model does, so that passages are cut at the same places."""

    def __init__(self, renderer, replies):
        super().__init__(replies)
        self.count_tokens = renderer.count


def decode(config, renderer, replies, question=QUESTION):
    """Decode for real.

    Return the answer, the chain as sampling would have noted it, and (task, hop, prompt) of what was asked.
    """
    generator = Counting(renderer, replies)
    tools = Tools(question, generator, WordRetriever(WORLD), keep_prompts=True)
    answer = asyncio.run(corag(question, tools, config))
    steps = [step for step in tools.steps if isinstance(step, GenerateStep)]
    asked = []
    for step, request in zip(steps, generator.requests, strict=True):
        assert step.prompt == request.prompt.text
        hop = int(step.path.split("hop ")[1].split("/")[0]) if "hop " in step.path else 0
        asked.append((ROLES[step.role], hop, request.prompt))
    context = question.context_ids or tuple(hit.passage.id for hit in tools.steps[0].hits)
    hops = answer.chains[0].hops
    sampled = SampledChain(hops, (-1.0,) * len(hops), (-1.0,) * len(hops), 3, "length")
    return answer, ChainRow(question, context, (sampled,), 0, ""), asked


def replies(*, stop=False):
    """Three hops: with a repeat and its retry, a refusal, and a search that finds nothing."""
    yield from ["Who wrote The Glass Orchard?", "Mara Velden."] + ["No"] * stop
    yield from ["who wrote the glass orchard", "Where was Mara Velden born?", REFUSAL] + ["No"] * stop
    yield from ["zzz"] + ["Yes"] * stop
    yield "The Issel"


CONFIGS = {
    "as it comes": {},
    "from the chain": {"context": "chain", "context_passages": 2},
    "fused, orders turned": {"context": "fused", "context_order": "best_first"},
    "passages cut": {"max_passage_tokens": 4},
    "passages left out": {"max_prompt_tokens": 190},
    "in turns": {"context": "fused", "merge": "turns", "context_passages": 3},
    "evidence": {"context": "evidence", "merge": "turns", "context_passages": 3},
    "other words": PROMPTS,
    "other words, continued": {"final_answer_prompt": "corag-like.txt", "task": "guess"},
}


def test_refusals_are_taught_on_what_a_search_found_without_the_answer(renderer):
    book, author, town, noise = (each.id for each in WORLD)
    hop = Hop("Who wrote The Glass Orchard?", "Mara Velden", False, (book, noise, author, town))
    silent = Hop("Where was Mara Velden born?", "Tarn Hollow", False, (author,))  # nothing is left to show
    chain = SampledChain((hop, silent), (-1.0, -1.0), (-1.0, -1.0), 2, "length")
    row = ChainRow(QUESTION, (book,), (chain,), 0, "", is_annotated=True)
    config = RowsConfig(tasks=("refusal",), ratio=1.0)
    (made,) = examples_of(row, renderer.count, config)
    assert (made.task, made.hop, made.reply) == ("refusal", 1, REFUSAL)
    shown = [each.text in made.prompt.text for each in WORLD]
    assert shown == [False, False, True, True] and hop.sub_query in made.prompt.text
    # What a model answered itself may be wrong: that it stands nowhere is no reason to refuse.
    assert examples_of(replace(row, is_annotated=False), renderer.count, config) == []


def test_no_refusal_is_taught_beside_a_gold_passage_or_an_alias(renderer):
    """They write the answer otherwise than the hop: a date in another form, a second name."""
    book, author, town, noise = (each.id for each in WORLD)
    hop = Hop("Who wrote The Glass Orchard?", "M. Velden (1913)", False, (book, author, town, noise))
    chain = SampledChain((hop,), (-1.0,), (-1.0,), 1, "length")
    question = replace(QUESTION, supporting=(book,), answers=("M. Velden (1913)", "Mara Velden"))
    row = ChainRow(question, (book,), (chain,), 0, "", is_annotated=True)
    (made,) = examples_of(row, renderer.count, RowsConfig(tasks=("refusal",), ratio=1.0))
    held = [each.id for each in WORLD if each.text in made.prompt.text]
    assert book not in held and not any("Mara Velden" in each.contents for each in WORLD if each.id in held)


# ---- byte equality


@pytest.mark.parametrize("stop", ["length", "check"])
@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_rows_ask_what_decoding_asks(renderer, options, stop, tmp_path):
    if "corag-like.txt" in options.values():
        (tmp_path / "corag-like.txt").write_text(
            "version: 7\n--- plain\n{passages}\n{hops}\nQ: {query}\nA:\n"
        )
        options = options | {"final_answer_prompt": str(tmp_path / "corag-like.txt")}
    config = replace(CORAG, max_hops=4 if stop == "check" else 3, stop=stop, **options)
    answer, row, asked = decode(config, renderer, replies(stop=stop == "check"))
    assert (answer.steps, answer.repeats, answer.stopped) == (3, 1, stop)
    made = {(each.task, each.hop): each for each in examples_of(row, renderer.count, ALL, config)}
    for task, hop, prompt in asked:
        mine = made[task, hop]
        assert mine.prompt.text == prompt.text
        done, shortening = tokenise(mine, renderer, ALL)
        target = renderer.target_ids(ScoreRequest(prompt, continuation(prompt, mine.reply), end_of_turn=True))
        assert done.input_ids == renderer.encode(prompt) + target and not shortening
        assert done.completion_mask == [0] * len(renderer.encode(prompt)) + [1] * len(target)
        assert (done.prompt, done.completion) == (prompt.text, continuation(prompt, mine.reply))
    met = {(task, hop) for task, hop, _ in asked}
    assert met >= {("sub_query", 3), ("sub_answer", 2), ("final_answer", 0)} and ("sub_answer", 3) not in made
    assert {key for key in made if key[0] not in ("stop", "no_chain", "draft")} == {
        key for key in met if key[0] != "stop"
    }
    assert stop == "length" or {hop for task, hop in met if task == "stop"} == {1, 2, 3}
    # What is replied is what decoding took from the replies; the retry after a repeat asks the same again.
    assert [made["sub_query", n].reply for n in (1, 2)] == [
        "Who wrote The Glass Orchard?",
        "Where was Mara Velden born?",
    ]
    assert [made["sub_answer", n].reply for n in (1, 2)] == ["Mara Velden.", REFUSAL]
    assert made["final_answer", 0].reply == "Issel", "the gold answer, not what was decoded"


@pytest.mark.parametrize("options", [*CONFIGS.values()][:5], ids=[*CONFIGS][:5])
@pytest.mark.parametrize("given", [(), ("mara velden", "glassware")])
def test_the_baseline_without_a_chain_asks_what_decoding_without_hops_asks(renderer, options, given):
    config = replace(CORAG, **options, given_context="use")
    question = replace(QUESTION, context_ids=given)
    _, row, _ = decode(replace(config, max_hops=3), renderer, replies(), question)
    _, _, [(task, _, prompt)] = decode(replace(config, max_hops=0), renderer, ["Issel"], question)
    made = {each.task: each for each in examples_of(row, renderer.count, ALL, config)}
    assert task == "final_answer" and made["no_chain"].prompt == prompt
    assert prompt.text != made["final_answer"].prompt.text and made["no_chain"].reply == "Issel"


def test_a_draft_is_what_is_asked_after_the_last_hop_of_a_chain_that_settles(renderer):
    config = replace(CORAG, max_hops=4, stop="settled")
    said = ["Who wrote The Glass Orchard?", "Mara Velden", "Velden"]
    said += ["Where was Mara Velden born?", "Tarn Hollow", "Issel"]
    said += ["Which river flows by Tarn Hollow?", "Issel", "the Issel", "Issel"]
    answer, row, asked = decode(config, renderer, said)
    assert (answer.steps, answer.stopped) == (3, "settled")
    prompts = {(task, hop): prompt for task, hop, prompt in asked}
    (made,) = examples_of(row, renderer.count, RowsConfig(tasks=("draft",)), config)
    assert made.prompt.text == prompts["draft", 3].text != prompts["draft", 2].text
    assert (made.task, made.hop, made.reply) == ("draft", 0, "Issel")
    assert BY_ID["mara velden"].text not in made.prompt.text


def test_a_row_by_hand(renderer):
    asked = TrainingExample("q1", "final_answer", 0, chat_prompt("Which river?", prefix="Answer:"), "Issel")
    row, _ = tokenise(asked, renderer, ALL)
    parts = [row.input_ids[: row.completion_mask.index(1)], row.input_ids[row.completion_mask.index(1) :]]
    prompt, completion = (renderer._tokenizer.decode(part) for part in parts)
    assert prompt.endswith("<|im_start|>user\nWhich river?<|im_end|>\n<|im_start|>assistant\nAnswer:")
    assert completion == " Issel<|im_end|>" and row.completion == " Issel"
    for prompt, text in [
        (chat_prompt("Which river?"), "Issel<|im_end|>"),  # begins a turn: no space
        (chat_prompt("Which river?", prefix="Answer:\n"), "Issel<|im_end|>"),  # begins a line
        (Prompt.of_text("Q: Which river?\nA: "), " Issel" + renderer._tokenizer.eos_token),
    ]:
        row, _ = tokenise(replace(asked, prompt=prompt), renderer, ALL)
        assert renderer._tokenizer.decode(row.input_ids[row.completion_mask.index(1) :]) == text


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_rows_hold_what_decoding_reads_in_every_vocabulary(family):
    renderer = renderer_of(family)
    prompt = chat_prompt("Who wrote it?", prefix="Answer:")
    asked = TrainingExample("q1", "final_answer", 0, prompt, "Paris")
    row, _ = tokenise(asked, renderer, ALL)
    ids = renderer.encode(prompt)
    taught = row.input_ids[len(ids) :]
    assert row.input_ids[: len(ids)] == ids and taught[-1] == renderer.end_of_turn()
    assert taught == renderer.target_ids(ScoreRequest(prompt, row.completion, end_of_turn=True))
    assert renderer.continuation(ids, taught[:-1]).casefold() == row.completion.casefold() == " paris"


# ---- which rows


def chain_row(name="q1", hops=3, means=None, **hop):
    record = Hop("Who wrote it?", "Mara Velden", False, ("the glass orchard",))
    made = tuple(replace(record, sub_query=f"{record.sub_query} {n}", **hop) for n in range(hops))
    chain = SampledChain(made, tuple(means or (-1.0,) * hops), (-1.0,), hops, "length")
    return ChainRow(replace(QUESTION, id=name), ("tarn hollow",), (chain,), 0, "")


def made_of(row, config=ALL):
    return examples_of(row, len, config)


@pytest.mark.parametrize("per", ["hop", "question"])
def test_about_the_share_that_was_asked_for_is_drawn(per):
    config = replace(ALL, tasks=("sub_query", "sub_answer", "stop"), ratio=0.2, ratio_per=per)
    drawn = [made_of(chain_row(f"q{n}"), config) for n in range(1000)]
    for task in config.tasks:
        counts = [sum(each.task == task for each in one) for one in drawn]
        assert 0.16 < sum(counts) / 3000 < 0.24
        assert set(counts) == ({0, 3} if per == "question" else {0, 1, 2, 3})
    assert drawn[:50] == [made_of(chain_row(f"q{n}"), config) for n in range(50)]
    assert drawn[:50] != [made_of(chain_row(f"q{n}"), replace(config, seed=1)) for n in range(50)]


def test_a_task_may_have_a_share_of_its_own():
    config = replace(ALL, ratio=0.3, ratios={"sub_query": 1.0, "final_answer": 0.5})
    tasks = [each.task for n in range(300) for each in made_of(chain_row(f"q{n}"), config)]
    assert tasks.count("sub_query") == 900 and tasks.count("no_chain") == 300
    assert 120 < tasks.count("final_answer") < 180
    assert 220 < tasks.count("sub_answer") < 320 and 220 < tasks.count("stop") < 320
    with raises_message(ConfigError):
        RowsConfig(ratios={"stop": 1.0})


def test_tasks_that_were_not_asked_for_are_not_made():
    assert [each.task for each in made_of(chain_row(), replace(ALL, tasks=("no_chain",)))] == ["no_chain"]
    assert [(each.task, each.hop) for each in made_of(chain_row(hops=2), RowsConfig(ratio=1.0))] == [
        ("sub_query", 1), ("sub_answer", 1), ("sub_query", 2), ("sub_answer", 2), ("final_answer", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "means,said",
    [
        ((-2.0, -0.5, -0.9), ["No", "Yes", "Yes"]),
        ((-0.5, -0.5, -0.9), ["Yes", "Yes", "Yes"]),
        ((-3.0, -2.0, -1.0), ["No", "No", "Yes"]),
        ((-1.0,), ["No", "No", "Yes"]),  # a decomposition, scored at its end only
    ],
)
def test_the_chain_should_stop_where_the_answer_is_likeliest(means, said):
    row = chain_row(means=means)
    assert [each.reply for each in made_of(row) if each.task == "stop"] == said
    assert best_stop_hop(row) == said.index("Yes") + 1


def test_a_question_is_set_aside_whole():
    config = replace(ALL, validation=0.25)
    aside = [is_validation(f"q{n}", config.seed, config.validation) for n in range(1000)]
    assert 0.2 < sum(aside) / 1000 < 0.3 and not any(is_validation(f"q{n}", 0, 0.0) for n in range(1000))
    assert aside != [is_validation(f"q{n}", 1, config.validation) for n in range(1000)]


# ---- refusals


def test_a_long_prompt_loses_passages_the_worst_first_and_a_long_answer_nothing(renderer):
    row = replace(chain_row(), context_ids=tuple(BY_ID))
    asked = next(each for each in made_of(row) if each.task == "final_answer")
    long = replace(asked, reply="Issel " * 9)
    whole, nothing = tokenise(long, renderer, ALL)
    assert not nothing
    cut, shortening = tokenise(long, renderer, replace(ALL, max_length=len(whole.input_ids) - 1))
    assert shortening.dropped == (("passage", 1),) and len(cut.input_ids) < len(whole.input_ids)
    read = renderer._tokenizer.decode(cut.input_ids)
    assert WORLD[2].text not in read and all(each.text in read for each in WORLD[:2])
    assert sum(cut.completion_mask) == sum(whole.completion_mask)


def test_rows_that_cannot_be_are_refused_by_name(renderer):
    asked = made_of(chain_row())[1]
    assert asked.name == "sub_answer of question 'q1', hop 1"
    with pytest.raises(DataError, match=f"{asked.name} has nothing to learn: the reply is blank"):
        tokenise(replace(asked, reply=" \n"), renderer, ALL)
    with pytest.raises(DataError, match=f"{asked.name} has a reply of 12 tokens, but rows have at most 12"):
        tokenise(replace(asked, reply="one two three four five six seven eight nine ten eleven"), renderer,
                 replace(ALL, max_length=12))  # fmt: skip
    with pytest.raises(DataError, match=f"{asked.name} does not fit into rows of 12 tokens"):
        tokenise(asked, renderer, replace(ALL, max_length=12))
    with raises_message(DataError):
        made_of(chain_row(passage_ids=("the glass orchard", "gone")))


def test_a_task_is_an_entry_of_one_table(monkeypatch):
    """Its rows come with the others', at its places, in its share, without a line elsewhere."""

    def count_hops(source, number):
        prompt = Prompt.of_text(source.row.question.text)
        yield TrainingExample(source.row.question.id, "count", number, prompt, str(len(source.chain.hops)))

    monkeypatch.setitem(
        row_tasks.ROW_TASKS,
        "count",
        RowTask("count", lambda corag, ircot: corag.prompt("sub_query"), lambda source: (0,), count_hops),
    )
    config = replace(ALL, tasks=("stop",))
    object.__setattr__(config, "tasks", ("count", "stop"))  # the names are the table's as it is imported
    made = made_of(chain_row(hops=2), config)
    assert [(each.task, each.hop, each.reply) for each in made[-2:]] == [
        ("stop", 2, "Yes"),
        ("count", 0, "2"),
    ]
    assert set(typing.get_args(row_tasks.Task)) == set(row_tasks.ROW_TASKS) - {"count"}
    for name in typing.get_args(row_tasks.Task):
        assert RowsConfig(tasks=(name,)).tasks == (name,)


def test_what_a_thinking_model_learns_stands_behind_the_empty_thought():
    tokenizer, prompt = thinking_tokenizer(HYBRID), chat_prompt("Who?", prefix="Next question:")
    example = TrainingExample("q", "sub_query", 1, prompt, SUB_QUERY)
    told = ThinkingOptions(), ThinkingOptions("strip"), ThinkingOptions("auto", {"enable_thinking": True})
    renderers = [Renderer(tokenizer, chat=True, thinking=options) for options in told]
    texts = [tokenizer.decode(tokenise(example, each, RowsConfig())[0].input_ids) for each in renderers]
    assert (
        texts == ["<|user|>Who?<|end|><|bot|><think>\n\n</think>\n\nNext question: Where is it?<|end|>"] * 3
    )
