"""IRCoT's thoughts from gold reasoning: sentences, the paragraphs at every step, and rows as IRCoT asks."""

import asyncio
import itertools
from dataclasses import asdict, fields, replace

import pytest
from datasets import load_from_disk

from corag.baselines.closed_book import ClosedBookConfig, closed_book
from corag.baselines.one_step import OneStepConfig, one_step
from corag.chains.prompting import continuation
from corag.cli.commands.ask import AskOptions
from corag.core.errors import DataError
from corag.core.language.sentences import first_sentence
from corag.core.language.text import mentions
from corag.core.options.command_line import parse
from corag.core.protocols import ScoreRequest
from corag.core.reader import ReaderConfig
from corag.core.runner import answer_question
from corag.core.runs.environment import environment
from corag.core.runs.folder import RunFolder
from corag.core.tools import Tools
from corag.core.types import GoldHop, Question
from corag.generation.trained_for import join_prompts
from eval.datasets.load import load_questions
from eval.datasets.reasoning import gold_sentences, hop_sentence
from eval.datasets.sets.jsonl import parse_question, question_record
from eval.datasets.world.world import generate
from ircot.method import IRCoTConfig, ircot
from tests.data import data_folder
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.training.toy import CORAG, QUESTION, SAMPLE, WORLD, examples_of, write_chains
from training.chains import describe, load_corag_options, load_ircot_options, read_chains
from training.data import RowsConfig, tokenise
from training.row_tasks import trained_prompts
from training.rows import read_report, write_rows
from training.sample import SampleRunConfig, chain_settings
from training.sampling import SampleConfig, collect_thoughts
from training.sft import ask_command

IRCOT = IRCoTConfig(k_per_step=2, max_steps=6)
THOUGHT = RowsConfig(tasks=("thought",), ratio=1.0, validation=0.0)
SAID = [
    "The author of The Glass Orchard is Mara Velden.",
    "Mara Velden was born in Tarn Hollow.",
    "Which river flows by Tarn Hollow: Issel.",
    "So the answer is: Issel.",
]


def collect(question=QUESTION, config=IRCOT, world=WORLD):
    tools = Tools(question, ScriptedGenerator([]), WordRetriever(world))
    return asyncio.run(collect_thoughts(question, tools, config))


# ---- sentences


def test_the_world_says_what_its_own_chains_of_thought_say():
    """Read backwards from sub-questions and answers; conclusions that no passage tells are left out."""
    province = next(
        each for each in generate(seed=3, passages=500, train=100, dev=20, test=20) if each.drafts
    )
    for asked, question in zip(province.drafts, province.questions, strict=True):
        told = gold_sentences(question)
        assert len(told) == len(asked.hops)
        for sentence, hop, gold in zip(told, asked.hops, question.decomposition, strict=True):
            assert mentions([sentence], [gold.answer]) and first_sentence(sentence) == sentence
            if len(hop.objects) == 1 and hop.objects[0].mention == hop.objects[0].name and not hop.which:
                assert sentence == hop.statement


def test_musique_and_two_wiki_name_what_each_hop_finds():
    assert (
        hop_sentence(GoldHop("#2 >> country", "Norway"), ["Emma", "Oslo"]) == "The country of Oslo is Norway."
    )
    hop = GoldHop("Who wrote it?", "Jane Austen", says="Emma was written by Jane Austen.")
    assert hop_sentence(hop, []) == "Emma was written by Jane Austen."
    question = replace(QUESTION, decomposition=(hop, GoldHop("Born where?", "Steventon", "p1")))
    whole = replace(question, context_ids=("p1",), pages=(("1", "2"),), titles=("Emma",), synthetic="by M")
    for each in (question, whole):
        assert parse_question(question_record(each), "here") == each
    assert "says" not in question_record(QUESTION)["decomposition"][0], "files are as they were"


@pytest.mark.parametrize(("dataset", "file"), [
    ("2wikimultihopqa", "2wikimultihopqa/train500_decomposed.json"), ("musique", "musique/train100.json"),
])  # fmt: skip
def test_every_real_hop_becomes_a_sentence_with_its_answer(dataset, file):
    questions = load_questions(data_folder() / file, dataset)
    hops = [
        (sentence, hop)
        for question in questions
        for sentence, hop in zip(gold_sentences(question), question.decomposition, strict=True)
    ]
    assert len(hops) > 2 * len(questions)
    assert all(mentions([sentence], [hop.answer]) for sentence, hop in hops)
    assert not any("#" in sentence.split()[0] for sentence, _ in hops)


# ---- the loop


def test_gold_thoughts_bring_in_the_paragraphs_of_the_next_ones():
    found = collect()
    assert [each.sentence for each in found.thoughts] == SAID and found.stopped == "answer"
    pools = [each.passage_ids for each in found.thoughts]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(pools))
    assert {"the glass orchard", "mara velden", "tarn hollow"} <= set(pools[-1])


def test_reasoning_ends_where_no_paragraph_holds_the_next_step():
    found = collect(world=[each for each in WORLD if each.title != "Tarn Hollow"])
    assert [each.sentence for each in found.thoughts] == SAID[:2] and found.stopped == "unsupported"
    nothing = collect(config=replace(IRCOT, max_shown_words=1))
    assert (nothing.thoughts, nothing.rejected) == ((), "unsupported"), (
        "a paragraph is shown by its beginning"
    )
    nothing = collect(world=[WORLD[3]])
    assert (nothing.thoughts, nothing.rejected) == ((), "unsupported")
    capped = collect(config=replace(IRCOT, max_steps=2))
    assert [each.sentence for each in capped.thoughts] == SAID[:2], "IRCoT would not have gone on either"


# ---- rows


@pytest.mark.parametrize("options", [{}, {"demonstrations": "default", "demonstration_count": 1},
                                     {"paragraph_budget": 2, "max_shown_words": 9}])  # fmt: skip
def test_rows_ask_what_ircot_asks(renderer, options):
    config = replace(IRCOT, reader="none", **options)
    thoughts = collect(config=config).thoughts
    assert len(thoughts) >= 2
    generator = ScriptedGenerator([each.sentence for each in thoughts] + ["So the answer is: Issel."])
    generator.count_tokens = renderer.count
    tools = Tools(QUESTION, generator, WordRetriever(WORLD))
    answer = asyncio.run(ircot(QUESTION, tools, config))
    assert answer.cot_sentences[: len(thoughts)] == tuple(each.sentence for each in thoughts)
    row = replace(read_row(), thoughts=thoughts)
    made = examples_of(row, renderer.count, THOUGHT, ircot=config)
    assert [each.hop for each in made] == list(range(1, len(thoughts) + 1))
    for example, request in zip(made, generator.requests, strict=False):
        assert example.prompt == request.prompt
        done, _ = tokenise(example, renderer, THOUGHT)
        said = continuation(example.prompt, example.reply)
        last = example.reply == SAID[-1]  # no other thought may end the turn: the next one is asked for there
        target = renderer.target_ids(ScoreRequest(example.prompt, said, end_of_turn=last))
        assert done.input_ids == renderer.encode(request.prompt) + target
        whole = request.prompt.prefix + said
        assert whole.endswith(example.reply) and "  " not in whole, "one space between sentences"


def read_row():
    from training.chains import ChainRow

    return ChainRow(QUESTION, (), (), None, "")


def write_thoughts(folder, questions, config=IRCOT):
    options = SampleRunConfig(questions="toy.jsonl", sample=SampleConfig(source="thoughts"), ircot=config)
    retriever, generator = WordRetriever(WORLD), ScriptedGenerator([])

    async def method(question, tools):
        return await collect_thoughts(question, tools, config)

    async def fill(run):
        for question in questions:
            run.append(await answer_question(question, method, Tools(question, generator, retriever)))

    with RunFolder(folder, chain_settings(options, generator, retriever), environment()) as run:
        asyncio.run(fill(run))


def test_thoughts_are_sampled_described_and_made_rows_also_beside_chains(tmp_path, renderer):
    other = Question(
        "lost", "Who made the Lost Gravity?", ("Mack",), decomposition=(GoldHop("Who?", "Mack"),)
    )
    thoughts = tmp_path / "thoughts"
    write_thoughts(thoughts, [QUESTION, replace(QUESTION, id="q2"), other])
    found = describe(read_chains([thoughts]))
    assert (found.thoughts, found.reasoned, found.stopped) == (8, 2, {"answer": 2})
    assert next(found.lines()).startswith(
        "questions 3, failed 0, with thoughts 2, of which 2 reach the answer"
    )
    assert load_ircot_options([thoughts]) == IRCOT
    write = lambda folders, name, config: asyncio.run(  # noqa: E731
        write_rows(folders, tmp_path / name, WordRetriever(WORLD), renderer, config)
    )
    report = write([thoughts], "rows", replace(THOUGHT, validation=0.0))
    assert (report.questions, report.left_out) == (2, {"unsupported": 1})
    said = [row["completion"].strip() for row in load_from_disk(str(tmp_path / "rows"))["train"]]
    assert said == SAID * 2
    # Beside chains of other questions they make one training set.
    chains = tmp_path / "chains"
    write_chains(chains, SAMPLE, CORAG, questions=[replace(QUESTION, id="q3")])
    both = write(
        [thoughts, chains], "both", RowsConfig(tasks=("final_answer", "thought"), ratio=1.0, validation=0)
    )
    assert {name: each.rows for name, each in both.lengths.items()} == {
        "train/final_answer": 1,
        "train/thought": 8,
    }
    assert load_corag_options([thoughts, chains]) == CORAG and load_ircot_options([chains]) is None
    with raises_message(DataError):
        write([thoughts], "none", RowsConfig(ratio=1.0))
    with raises_message(DataError):
        write([chains], "none", THOUGHT)


@pytest.mark.parametrize("options", [{}, {"demonstrations": "default", "demonstration_count": 1},
                                     {"reader": "cot", "max_shown_words": 9}])  # fmt: skip
def test_rows_of_readers_are_what_their_methods_ask(renderer, options):
    """So that a baseline can be fine-tuned on the same questions as CoRAG, each for its own prompts."""
    config = replace(IRCOT, **options)
    found = collect(config=config)
    tasks = ("reader", "one_step", "closed_book")
    row = replace(read_row(), thoughts=found.thoughts)
    made = examples_of(row, renderer.count, replace(THOUGHT, tasks=tasks), ircot=config)
    same = {each.name: getattr(config, each.name) for each in fields(ReaderConfig)}
    asked = {
        "reader": (ircot, config, [each.sentence for each in found.thoughts]),
        "one_step": (one_step, OneStepConfig(**same, k=config.k_per_step), []),
        "closed_book": (closed_book, ClosedBookConfig(**same), []),
    }
    assert [(each.task, each.reply, each.hop) for each in made] == [(task, "Issel", 0) for task in tasks]
    for example in made:
        method, its_config, replies = asked[example.task]
        generator = ScriptedGenerator([*replies, "Issel"])
        generator.count_tokens = renderer.count
        asyncio.run(method(QUESTION, Tools(QUESTION, generator, WordRetriever(WORLD)), its_config))
        assert generator.requests[-1].prompt == example.prompt
        taught = trained_prompts((example.task,), CORAG, config)
        assert taught == {method.__name__: [its_config.qa_template().identity]}


@pytest.mark.parametrize(
    ("tasks", "method", "k"),
    [
        ("closed_book,one_step", "one_step", 6),
        ("one_step", "one_step", 6),
        ("reader,one_step", "ircot", 6),
    ],
)
def test_a_training_of_readers_ends_with_a_command_that_can_be_given(tasks, method, k):
    chains = [{"options": {"ircot": asdict(replace(IRCOT, k_per_step=k))}}]
    rows = {"chains": chains, "rows": {"tasks": tasks.split(",")}, "tokenizer": "ids:no chat"}
    command = ask_command({"rows": [rows]}, [], ["--retriever.index", "INDEX"])
    assert command[-2:] == ["--model.chat", "no"]
    asked = parse(AskOptions, command[2:], "corag ask", "")
    assert list(asked.method) == [method]
    assert method != "one_step" or asked.of(method).k == k


def test_a_report_says_which_prompts_its_rows_teach(tmp_path, renderer):
    thoughts, chains = tmp_path / "thoughts", tmp_path / "chains"
    write_thoughts(thoughts, [QUESTION])
    write_chains(chains, SAMPLE, CORAG, questions=[replace(QUESTION, id="q3")])
    config = RowsConfig(tasks=("stop", "final_answer", "draft", "one_step"), ratio=1.0, validation=0)
    report = asyncio.run(
        write_rows([thoughts, chains], tmp_path / "rows", WordRetriever(WORLD), renderer, config)
    )
    final, stop = CORAG.prompt("final_answer").identity, CORAG.prompt("stop_check").identity
    reader = OneStepConfig().qa_template().identity
    assert report.trained_for == {"corag": [final, stop], "one_step": [reader]}
    assert read_report(tmp_path / "rows").trained_for == report.trained_for
    both = join_prompts([report.trained_for, {"corag": [stop, "mine v1"], "ircot": ["x v1"]}])
    assert both == {"corag": [final, stop, "mine v1"], "one_step": [reader], "ircot": ["x v1"]}


def test_a_thought_whose_paragraph_finds_no_room_is_not_taught(tmp_path, renderer):
    thoughts = tmp_path / "thoughts"
    write_thoughts(thoughts, [QUESTION])
    row = next(iter(read_chains([thoughts])))
    sizes = [
        len(tokenise(each, renderer, THOUGHT)[0].input_ids)
        for each in examples_of(row, renderer.count, THOUGHT, ircot=IRCOT)
    ]
    # The second step has its own search's paragraph left, the others none that holds their fact.
    config = replace(THOUGHT, max_length=min(sizes) - 5)
    report = asyncio.run(write_rows([thoughts], tmp_path / "rows", WordRetriever(WORLD), renderer, config))
    rows = load_from_disk(str(tmp_path / "rows"))["train"]
    assert report.lost and len(rows) + len(report.lost) == len(SAID)
    assert "thought of question 'q1', hop 1" in report.lost and "lost what they rest on" in next(
        report.lines()
    )
    facts = {1: "Mara Velden", 2: "Tarn Hollow", 3: "Issel"}
    for each in rows:
        shown = renderer.continuation((), each["input_ids"][: each["completion_mask"].index(1)])
        assert each["hop"] == 4 or mentions([shown], [facts[each["hop"]]])
