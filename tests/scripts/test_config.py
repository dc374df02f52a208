"""One way to configure: presets, YAML, command line; every mistake answered with a sentence."""

import importlib
import subprocess
import sys
from dataclasses import asdict, fields
from typing import get_type_hints

import pytest

from corag.config import CoRAGConfig
from core.errors import ConfigError
from core.options import identity_of, parse, parser_of
from eval.experiment.run import RunConfig
from generation.config import ModelConfig
from ircot.method import IRCoTConfig
from retrieval.config import RetrieverConfig
from scripts.cli import COMMANDS, main


def configure(*argv):
    return parse(RunConfig, ["--questions", "q.jsonl", *argv], "corag run", "")


def test_later_wins_preset_yaml_command_line(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "method: [one_step, ircot]\nbatch_size: 7\nircot:\n  preset: paper_code\n  top_k: 6\n  reader: none\n"
        "  reasoning_prompt: |\n    {paragraphs}\n    {query}: {cot_history}\nretriever:\n  index: [a, b]\n"
    )
    config = configure("--config", str(file), "--ircot.k_per_step", "2")
    assert config.method == ["one_step", "ircot"] and config.batch_size == 7
    assert (config.ircot.max_steps, config.ircot.stop_rule) == (10, "strict")
    assert config.ircot.reader == "none", "a stated option beats its preset"
    assert config.ircot.k_per_step == 2, "the command line beats the file, aliases included"
    assert config.ircot.reasoning_prompt == "{paragraphs}\n{query}: {cot_history}\n"
    assert list(config.retriever.index) == ["a", "b"]


def test_presets_of_corag():
    config = configure("--corag.preset", "released_code", "--corag.N", "8", "--corag.L", "10").corag
    assert (config.chains, config.max_hops, config.first_chain_greedy, config.repeats) == (
        8,
        10,
        True,
        "exact",
    )
    assert configure().corag.preset == "paper" and not configure().corag.first_chain_greedy
    assert configure("--corag.greedy_chain", "true").corag.first_chain_greedy


def test_only_the_preset_that_no_paper_has_merges_searches_in_turns():
    """And where they are merged as before, a run's settings are those of older runs."""
    for preset, merge in (("paper", "reciprocal_rank"), ("released_code", "reciprocal_rank")):
        config = CoRAGConfig.of_preset(preset)
        assert config.merge == merge and "merge" not in identity_of(config)
    assert CoRAGConfig.of_preset("small_model").merge == "turns"
    assert identity_of(CoRAGConfig.of_preset("small_model"))["merge"] == "turns"


def test_presets_of_ircot():
    few_shot = ("--ircot.demonstrations", "demos.txt", "--ircot.preset")
    assert configure(*few_shot, "paper").ircot.max_steps == 8
    assert configure(*few_shot[:2], "--ircot.preset=paper_code").ircot.max_steps == 10
    assert configure().ircot.stop_rule == "lenient"
    assert configure(*few_shot, "paper", "--ircot.max_steps", "3").ircot.max_steps == 3
    assert configure(*few_shot, "paper").ircot == IRCoTConfig.of_preset("paper", demonstrations="demos.txt")


def test_options_of_all_methods_that_came_later_change_no_identity():
    def later(config):
        for each in fields(config):
            section = getattr(config, each.name)
            for base in type(section).__mro__:
                yield from ((each.name, name) for name in vars(base).get("LATER", ()))

    usual = configure()
    noted = identity_of(usual)
    found = set(later(usual))
    assert {("recursive", "answer"), ("recursive", "reader_question_prefix")} <= found
    assert not [(section, name) for section, name in found if name in noted[section]]


def test_the_environment_is_left_out_of_what_results_depend_on():
    usual = configure()
    noted = asdict(usual)
    noted["model"] |= {"retries": 3}  # a former default
    assert identity_of(usual, whole=True) == noted, "what was made with former defaults is still recognised"
    assert "tokenizer" not in identity_of(usual)["model"], "an option that came later changes no identity"
    elsewhere = configure("--model.kv_cache_gb", "8", "--retriever.threads", "3")
    assert identity_of(elsewhere) == identity_of(usual)
    assert identity_of(configure("--model.max_context", "512"))["model"]["max_context"] == 512
    for section in (ModelConfig, RetrieverConfig):
        assert set(section.ENVIRONMENT) <= {each.name for each in fields(section)}


def test_limits_of_passages_answer_to_their_former_names():
    config = configure(
        "--ircot.max_passage_words", "7", "--ircot.max_paragraph_words", "8", "--ircot.top_k", "9"
    ).ircot
    assert (config.max_collected_words, config.max_shown_words, config.k_per_step) == (7, 8, 9)
    config = configure("--one_step.max_passage_words", "7", "--one_step.max_paragraph_words", "8").one_step
    assert (config.max_collected_words, config.max_shown_words) == (7, 8)
    for method, former in (
        ("closed_book", "paragraph"), ("iter_retgen", "paragraph"), ("flare", "paragraph"), ("recursive",
        "paragraph"),
        ("self_rag", "paragraph"), ("self_rag_prompted", "paragraph"), ("self_ask", "passage"),
        ("search_o1", "passage"),
        ("drag", "document"), ("iterdrag", "document"),
    ):  # fmt: skip
        config = configure(f"--{method}.max_{former}_words", "5")
        assert getattr(config, method).max_shown_words == 5, method


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--ircot.max_stepz", "3"], "unknown option '--ircot.max_stepz': did you mean 'ircot.max_steps'"),
        (["--ircot.max_steps", "many"], "--ircot.max_steps.*expected a whole number, but got 'many'"),
        (
            ["--ircot.preset", "papr"],
            "expected one of paper, paper_code, paper_flan, zero_shot, but got 'papr'",
        ),
        (["--corag.unsure_above", "x"], "'--corag.unsure_above': expected a number or null, but got 'x'"),
        (["--retriver", "x"], "unknown option '--retriver': did you mean the section 'retriever'"),
        (["--ircot.max_steps", "0"], "at least 1"),
        (["--ircot.preset", "paper"], "few-shot: name a file"),
        (["--method", "irct"], "no method 'irct': did you mean 'ircot'"),
        (["--limit"], "'--limit' has no value"),
        (["stray"], "unexpected argument 'stray'"),
        (["--config", "nowhere.yaml"], "no configuration file 'nowhere.yaml'"),
        (["--batch_size", "0"], "batch_size"),
        (["--corag.strategy", "tre"], "--corag.strategy.*best_of_n"),
        (["--corag.N", "0"], "corag's chains must be at least 1, but it is 0"),
    ],
)
def test_mistakes_on_the_command_line(argv, complaint):
    with pytest.raises(ConfigError, match=complaint):
        configure(*argv)


def test_mistakes_in_a_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("ircot:\n  budget_polcy: keep_last\n")
    with pytest.raises(
        ConfigError,
        match=r"c\.yaml' has the unknown option 'ircot\.budget_polcy': did you mean 'ircot\.budget_policy'",
    ):
        configure("--config", str(file))
    file.write_text("retriver:\n  index: indexes/mine\n")
    with pytest.raises(ConfigError, match="unknown option 'retriver': did you mean the section 'retriever'"):
        configure("--config", str(file))
    file.write_text("- a list")
    with pytest.raises(ConfigError, match="holds a list"):
        configure("--config", str(file))
    file.write_text("a: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        configure("--config", str(file))


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'"),
        (["run"], "no questions were given"),
        (["ask", "  "], "the question is empty"),
        (["bench", "speed"], "no benchmark 'speed'"),
        (["world"], "no folder was given"),
        (["index"], "these options are missing: --corpus, --out."),
        (["compare", "one"], "two run folders"),
        (["run", "--questions", "missing.jsonl", "--method", "closed_book"], "missing.jsonl"),
    ],
)
def test_user_errors_are_one_sentence_and_status_2(argv, complaint, capsys):
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err and "Traceback" not in printed.err and printed.out == ""


@pytest.mark.parametrize(
    "package",
    [
        "core",
        "corag",
        "ircot",
        "baselines",
        "generation",
        "retrieval",
        "eval",
        "training",
        "scripts.commands.run",
    ],
)
def test_importing_loads_nothing_heavy(package):
    from scripts.bench.startup import heavy_imports

    assert heavy_imports(f"import {package}") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_without_heavy_imports(command):
    from scripts.bench.startup import heavy_imports

    help_of = (
        f"try:\n    main([*'{command}'.split(), '--help'])\nexcept SystemExit as e:\n    assert e.code == 0"
    )
    assert heavy_imports(f"from scripts.cli import main\n{help_of}") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_checked(command):
    """jsonargparse takes anything, without a word, for options whose types it cannot resolve."""
    main = importlib.import_module(COMMANDS[command].module).main
    (options,) = (kind for name, kind in get_type_hints(main).items() if name != "return")
    assert "Unvalidated" not in parser_of(options).format_help()


def test_help_lists_every_command():
    printed = subprocess.run(
        [sys.executable, "-m", "scripts.cli", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(f"  {name} " in printed for name in COMMANDS)


def test_the_house_has_its_floors():
    """The import-linter contracts of pyproject.toml hold."""
    checked = subprocess.run(
        [sys.executable, "-m", "importlinter.cli", "lint"], capture_output=True, text=True, check=False
    )
    if "No module named" in checked.stderr:
        checked = subprocess.run(["lint-imports"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
