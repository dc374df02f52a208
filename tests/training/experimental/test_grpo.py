"""Reinforcement with TRL's real trainer on a tiny real model: the reward, what is logged, and resuming."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import training.experimental.grpo
from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.prompting import sub_query_prompt
from corag.chains.rank import answer_log_likelihood
from corag.cli.main import main as command
from corag.core.command_line import parse
from corag.core.errors import ConfigError, DataError
from corag.core.protocols import Completion
from corag.core.runner import answer_question
from corag.core.runs.folder import RunFolder
from corag.core.runs.manifest import CHAINS
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.config import ModelConfig
from corag.generation.rendering import Renderer
from corag.generation.transformers_engine import TransformersGenerator
from eval.api.background import background
from eval.experiment.opening import open_index_quietly
from eval.experiment.questions import FurtherQuestions
from retrieval.config import RetrieverConfig
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.training.conftest import PASSAGES, TOWNS
from tests.training.experimental import test_pairs
from tests.training.launching import kill_after, launched
from training.chains import load_corag_options, read_chains
from training.experimental.config import GrpoConfig, RewardOptions
from training.experimental.grpo import (
    build_arguments,
    check_dev,
    evaluate_dev,
    load_dev,
    load_prefixes,
    main,
    training_settings,
)
from training.experimental.reward import Prefix, Rewarder, list_prefixes, score_reply
from training.sampling import SampleConfig, sample_chains

GRPO = str(Path(__file__).parents[3] / "training/experimental/grpo.py")
CORAG = CoRAGConfig(
    passages_per_hop=2,
    context_passages=2,
    max_sub_query_tokens=6,
    max_sub_answer_tokens=6,
    max_answer_tokens=4,
)
SAMPLE = SampleConfig(chains=3, max_hops=2, temperature=1.0)
Options = Callable[..., GrpoConfig]


def questions(count: int) -> list[Question]:
    return [
        Question(f"q{number}", f"When was the mayor of {town} born?", (str(1900 + number),), hops=2)
        for number, town in enumerate(TOWNS[:count])
    ]


@pytest.fixture(scope="module")
def engine(tiny_model: str, start: str) -> TransformersGenerator:
    """The tiny model with the start adapter, as the reward asks it."""
    return TransformersGenerator.open(ModelConfig(backend="transformers", name=tiny_model, adapter=start))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real index over the passages, for programs of their own."""
    folder = tmp_path_factory.mktemp("index")
    lines = [json.dumps({"id": each.id, "title": each.title, "text": each.text}) for each in PASSAGES]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    assert command(["index", str(folder / "corpus.jsonl"), "--out", str(folder / "bm25")]) == 0
    return str(folder / "bm25")


@pytest.fixture(scope="module")
def chains(
    tmp_path_factory: pytest.TempPathFactory, engine: TransformersGenerator, index: str
) -> Iterator[str]:
    """Chains that the tiny model sampled with that index."""
    folder = tmp_path_factory.mktemp("sampled") / "chains"

    async def fill() -> None:
        retriever = await open_index_quietly(RetrieverConfig(index=[index]))
        settings = {
            "method": CHAINS,
            "options": {"sample": asdict(SAMPLE), "corag": asdict(CORAG)},
            "prompts": [template.identity for template in CORAG.templates()],
            "questions": {"source": "by hand"},
            "model": engine.fingerprint,
            "retriever": retriever.fingerprint,
            "seed": 0,
        }

        async def method(question: Question, tools: Tools) -> Any:
            return await sample_chains(question, tools, SAMPLE, CORAG)

        with RunFolder(folder, settings, {"questions": "train.jsonl"}) as run:
            for question in questions(4):
                row = await answer_question(question, method, Tools(question, engine, retriever))
                assert not row.error, row.error
                run.append(replace(row, steps=()))
        await retriever.close()

    background().run(fill())
    yield str(folder)


@pytest.fixture
def options(chains: str, index: str, start: str, tiny_model: str, tmp_path: Path) -> Options:
    def make(**changes: Any) -> GrpoConfig:
        quick = {
            "chains": [chains], "retriever": RetrieverConfig(index=[index]), "out": str(tmp_path / "adapter"),
            "model": tiny_model, "adapter": start, "precision": "float32", "batch_size": 4, "generations": 4,
            "max_steps": 2, "learning_rate": 5e-3, "logging_steps": 1, "warmup": 0.0, "schedule": "constant",
        }  # fmt: skip
        return GrpoConfig(**(quick | changes))

    return make


def test_the_reward_is_the_gain_that_sampling_measured(
    chains: str, engine: TransformersGenerator, tiny_model: str, options: Options
) -> None:
    """Every hop of every chain, asked again by its tokens: the score after it less the one before it."""
    renderer = Renderer.load(tiny_model)
    config = options()
    opened = background().run(training.experimental.grpo.open_all(config))
    checked = [0, 0]
    for row in read_chains([Path(chains)]):
        prefixes = {prefix.before: prefix for prefix in list_prefixes(row, 0, renderer, CORAG)}
        unbound = RewardOptions(least_gain=-99, repeat_penalty=100, blank_penalty=100, guesses=True)
        rewarder = Rewarder(list(prefixes.values()), engine, opened.retriever, renderer, CORAG, unbound)
        places = list(prefixes)
        tools = Tools(row.question, engine)
        first = background().run(answer_log_likelihood(Chain(), row.question.answers, tools, CORAG)).mean
        for chain in row.chains:
            scores = (first, *chain.means)
            for place, hop in enumerate(chain.hops):
                number = places.index(chain.hops[:place])
                ids = renderer.text_ids(hop.sub_query)
                if (
                    renderer.continuation(prefixes[chain.hops[:place]].prompt_ids, ids).strip()
                    != hop.sub_query
                ):
                    continue  # a random model's text may be spelled by other tokens
                ids += [] if hop.query_cut else [renderer.end_of_turn()]
                logged: dict[str, float] = {}
                (reward,) = rewarder.information_gain([""], [""], [ids], [number], logged.__setitem__)
                assert reward == pytest.approx(scores[place + 1] - scores[place], abs=1e-4)
                assert logged["repeats"] == logged["blanks"] == 0 and logged["gain"] == reward
                checked[place] += 1
    assert checked[0] > 2 and checked[1] > 2


def scripted(before: float, after: float) -> ScriptedGenerator:
    """A model that answers every sub-query, and finds the gold answer likelier once it has."""

    def likelihood(request: Any) -> float:
        return after if "river?" in request.prompt.text.lower().replace("which ", "") else before

    return ScriptedGenerator(lambda request: "Issel", log_likelihood=likelihood)


def rewarded(
    text: str,
    asked: tuple[str, ...] = (),
    scores: tuple[float, float] = (-3.0, -1.0),
    query: str = "Where is it?",
    found: str = "x",
    **options: Any,
) -> Any:
    question = Question("q", query, ("Issel",))
    before = tuple(Hop(each, found, False, ()) for each in asked)
    prefix = Prefix(question, before, "", ())
    tools = Tools(question, scripted(*scores), WordRetriever(PASSAGES))
    reply = Completion(text, (), "stop")
    return asyncio.run(score_reply(reply, prefix, tools, CORAG, RewardOptions(**options)))


def test_repeats_and_blanks_are_penalised_and_gains_counted_as_asked() -> None:
    found = rewarded("Which river?")
    assert found.reward == found.gain == pytest.approx(2.0) and not found.repeats and not found.blank
    assert rewarded("Which river?", of="probability").reward == pytest.approx(math.exp(-1) - math.exp(-3))
    repeat = rewarded("which mayor", asked=("Which mayor?",), repeat_penalty=0.7)
    assert (repeat.reward, repeat.gain, repeat.repeats, repeat.blank) == (-0.7, 0.0, True, False)
    blank = rewarded("\n ", blank_penalty=0.9)
    assert (blank.reward, blank.repeats, blank.blank) == (-0.9, False, True)


def test_whatever_is_asked_anew_is_worth_more_than_a_repeat_or_a_blank() -> None:
    lost = rewarded("Which river?", scores=(-1.0, -6.0))
    assert lost.gain == pytest.approx(-5.0) and lost.reward == -0.4
    repeat, blank = rewarded("which mayor", asked=("Which mayor?",)), rewarded(" ")
    assert repeat.reward < lost.reward and blank.reward < lost.reward
    a_little = rewarded("Which river?", scores=(-1.0, -1.3))
    assert a_little.reward == a_little.gain == pytest.approx(-0.3)
    for options in (
        {"least_gain": -0.5}, {"least_gain": -2.0, "blank_penalty": 3.0}, {"least_gain": 0.1},
        {"repeat_penalty": 0.0}, {"least_gain": math.nan},
    ):  # fmt: skip
        with raises_message(ConfigError):
            RewardOptions(**options)


def test_who_names_the_answer_before_anything_did_gains_nothing() -> None:
    guess = rewarded("Is it on the Issel, which river?")
    assert (guess.reward, guess.names_answer) == (0.0, True) and guess.gain == pytest.approx(2.0)
    assert rewarded("Is it on the Issel, which river?", guesses=True).reward == pytest.approx(2.0)
    worse = rewarded("Is it on the Issel, which river?", scores=(-1.0, -1.3))
    assert worse.reward == pytest.approx(-0.3), "a guess may lose"
    # Named by the question, or found on the way, it may be asked about.
    asked = rewarded("Is it on the Issel, which river?", query="Is it the Rhine or the Issel?")
    found = rewarded("Is it on the Issel, which river?", asked=("Which mayor?",), found="Of the Issel.")
    for each in (asked, found, rewarded("Which river?")):
        assert each.reward == pytest.approx(2.0) and not each.names_answer
    assert Rewarder.shares([guess, found])["names_answer"] == 0.5


def test_dev_questions_that_are_trained_on_are_refused(options: Options, tmp_path: Path) -> None:
    """Before anything is opened; they are known by their words, however these are typed."""
    dev = tmp_path / "dev.jsonl"

    def config_for(*asked: Question) -> GrpoConfig:
        lines = [{"id": each.id, "question": each.text, "answers": list(each.answers)} for each in asked]
        dev.write_text("".join(json.dumps(each) + "\n" for each in lines))
        return options(dev=FurtherQuestions(questions=str(dev)))

    fresh, known = questions(5)[4], questions(1)[0]
    typed = replace(known, id="other", text="when was mayor of ARLEN born")
    for shared in (known, typed):
        said = rf"1 of the 2 dev questions are trained on, such as '{shared.id}'.*--dev.skip"
        with pytest.raises(ConfigError, match=said):
            main(config_for(fresh, shared))
    config = config_for(replace(fresh, id="q0"))
    check_dev(config, load_dev(config), questions(4))  # an id alone may be anything's


def test_loss_and_scaling_reach_trl_and_stand_in_the_manifest(options: Options, tiny_model: str) -> None:
    for changes, loss, scale in (
        ({}, "dapo", "group"),
        ({"loss": "dr_grpo", "scale_rewards": "none"}, "dr_grpo", "none"),
    ):
        config = options(**changes)
        said = build_arguments(config, CORAG)
        assert (said.loss_type, said.scale_rewards) == (loss, scale)
        noted = training_settings(config, tiny_model)["options"]
        assert (noted["loss"], noted["scale_rewards"]) == (loss, scale)


def test_a_cold_start_and_groups_that_cannot_be_are_refused(options: Options) -> None:
    for changes, said in (
        ({"adapter": ""}, r"goes on from an adapter.*collapse from a cold start \(--cold_start true"),
        ({"adapter": "", "tuning": "full"}, "lora or qlora"),
        ({"cold_start": True}, "leave out --adapter"),
        ({"generations": 3}, "in groups"),
        ({"chains": []}, "name the chains"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"batching": "by_length"}, "batches that are padded, but batching is by_length"),
    ):
        with pytest.raises(ConfigError, match=said):
            options(**changes)
    assert options(adapter="", cold_start=True).cold_start


def test_a_prompt_that_is_too_long_is_refused_whatever_its_limit(
    chains: str, options: Options, tiny_model: str, tmp_path: Path
) -> None:
    narrow = tmp_path / "narrow"  # reads less at once than max_length would allow
    shutil.copytree(tiny_model, narrow)
    described = json.loads((narrow / "config.json").read_text())
    (narrow / "config.json").write_text(json.dumps(described | {"max_position_embeddings": 30}))
    renderer, corag = Renderer.load(tiny_model), load_corag_options([Path(chains)])
    for folder, most, said in (
        (tiny_model, 20, "more than max_length 20"),
        (str(narrow), 0, "more than the 30 that"),
        (str(narrow), 4000, "more than the 30 that"),
    ):
        with pytest.raises(DataError, match=said):
            load_prefixes(options(max_length=most), folder, renderer, corag)


def test_the_shipped_configurations_are_read() -> None:
    configs = Path(training.experimental.grpo.__file__).parent / "configs"
    words = ["--chains", "chains", "--retriever.index", "index", "--out", "made", "--adapter", "adapter"]
    for name in ("grpo_cpu.yaml", "grpo_1gpu.yaml"):
        found = parse(GrpoConfig, ["--config", str(configs / name), *words], "", "")
        assert found.engine.backend == "transformers" and found.chains == ["chains"]
        assert found.batch_size * found.accumulation // found.generations >= 2, "several groups an update"


def test_a_prefix_is_asked_once_and_as_decoding_asks(chains: str, options: Options, tiny_model: str) -> None:
    renderer, config = Renderer.load(tiny_model), options(per_question=2)
    corag = load_corag_options([Path(chains)])
    found = load_prefixes(config, tiny_model, renderer, corag)
    assert len({(each.question.id, each.before) for each in found}) == len(found)
    assert [each.question.id for each in found if not each.before] == ["q0", "q1", "q2", "q3"]
    assert max(sum(each.question.id == f"q{number}" for each in found) for number in range(4)) <= 2
    first = sub_query_prompt(found[0].question.text, Chain(), corag)
    assert list(found[0].prompt_ids) == renderer.encode(first)


def test_beginnings_of_every_length_are_learned_from(tiny_model: str) -> None:
    """Of each length the one that most was tried after, then the second of each."""
    first = [(f"Who {number}?", f"a{number}", -2.0) for number in range(5)]
    second, third = ("Where?", "b", -1.0), ("When?", "c", -0.5)
    chain = test_pairs.chain
    sampled = test_pairs.row(
        *map(chain, first), *[chain(each, second, third) for each in first[2:]], chain(first[4], third)
    )
    found = list_prefixes(sampled, 4, Renderer.load(tiny_model), CORAG)
    assert [[hop.sub_answer for hop in each.before] for each in found] == [[], ["a4"], ["a2"], ["a2", "b"]]
    assert len(list_prefixes(sampled, 0, Renderer.load(tiny_model), CORAG)) == 1 + 3 + 3


def test_dev_questions_are_answered_and_counted() -> None:
    def reply(request: Any) -> str:
        return "1900" if "Arlen" in request.prompt.text else "nothing"

    generator = ScriptedGenerator(reply)
    corag = replace(CORAG, max_hops=1)
    found = asyncio.run(evaluate_dev(questions(4), generator, WordRetriever(PASSAGES), corag))
    assert found["dev_em"] == 0.25 and found["dev_hops"] == 1


def lines_of(config: GrpoConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(config.out) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_steps_are_taken_logged_and_gone_on_from(options: Options, tmp_path: Path) -> None:
    """Killed in the middle it ends in the weights of a training that was not."""
    dev = tmp_path / "dev.jsonl"
    asked = [
        {"id": each.id, "question": each.text, "answers": list(each.answers)} for each in questions(6)[4:]
    ]
    dev.write_text("".join(json.dumps(each) + "\n" for each in asked))
    once = options(
        max_steps=8, save_steps=1, eval_steps=4, per_question=1, save_precision="float32",
        out=str(tmp_path / "once"),
        dev=FurtherQuestions(questions=str(dev), dataset="jsonl"), dev_hops=1, dev_stop="length",
    )  # fmt: skip
    twice = replace(once, out=str(tmp_path / "twice"))
    with (tmp_path / "log").open("w") as log:
        process = launched(GRPO, twice, tmp_path, log)
        kill_after(process, tmp_path / "twice", 5)  # four prefixes: in the second epoch
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    resumed, whole = main(twice)["result"], main(once)["result"]
    assert resumed["resumed_from"].startswith("checkpoint-") and whole["resumed_from"] == ""
    before, after = (dict(load_file(Path(each.out) / "adapter_model.safetensors")) for each in (once, twice))
    assert before.keys() == after.keys()
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-5)
    start = dict(load_file(Path(once.adapter) / "adapter_model.safetensors"))
    assert max((before[name] - start[name]).abs().max().item() for name in before) > 0
    lines = lines_of(once)
    steps = [line for line in lines if "reward" in line]
    assert [line["step"] for line in steps] == list(range(1, 9))
    for line in steps:
        assert {
            "reward",
            "kl",
            "completions/mean_length",
            "repeats",
            "blanks",
            "names_answer",
            "gain",
            "entropy",
        } <= line.keys()
    assert [line["step"] for line in lines if "dev_em" in line] == [0, 4, 8]
    assert [line["reward"] for line in lines_of(twice) if "reward" in line] == pytest.approx(
        [line["reward"] for line in steps], abs=1e-4
    )
