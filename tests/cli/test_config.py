"""One way to configure: presets, YAML, command line; every mistake answered with a sentence."""

import subprocess
import sys
from dataclasses import asdict

import pytest

from corag.chains.config import CoRAGConfig
from corag.cli.commands import COMMANDS
from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from corag.core.options.names import Mark, marked_options
from corag.core.runs.provenance import settings_of
from eval.experiment.run import RunConfig
from retrieval.config import RetrieverConfig
from tests.messages import raises_message

HEAVY = ("torch", "vllm", "transformers", "jnius", "pyserini", "faiss", "sentence_transformers", "datasets")


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


def test_what_print_config_prints_is_the_same_configuration_when_it_is_read_back(tmp_path, capsys):
    words = [
        "--method",
        "corag,ircot",
        "--corag.preset",
        "released_code",
        "--corag.N",
        "8",
        "--model.adapter",
        "a",
    ]
    words += [
        "--index",
        "x,y",
        "--columns",
        "question=q,answers=a",
        "--ircot.reasoning_prompt",
        "{paragraphs}\n{query}",
    ]
    with pytest.raises(SystemExit) as ended:
        configure(*words, "--print_config")
    assert ended.value.code == 0
    (tmp_path / "whole.yaml").write_text(capsys.readouterr().out)
    again = parse(RunConfig, ["--config", str(tmp_path / "whole.yaml")], "corag run", "")
    assert again == configure(*words) and again.corag.chains == 8 and again.retriever.index == ["x", "y"]


def test_only_the_preset_that_no_paper_has_merges_searches_in_turns():
    for preset, merge in (("paper", "reciprocal_rank"), ("released_code", "reciprocal_rank")):
        config = CoRAGConfig(preset=preset)
        assert config.merge == merge
    assert CoRAGConfig(preset="small_model").merge == "turns"


def test_the_environment_is_left_out_of_what_results_depend_on():
    usual = configure()
    assert settings_of(usual) == asdict(usual)
    elsewhere = configure("--model.kv_cache_gb", "8", "--retriever.threads", "3")
    assert settings_of(elsewhere) == settings_of(usual)
    assert settings_of(configure("--model.max_context", "512"))["model"]["max_context"] == 512
    placed = {"device", "encoder_batch", "search_device"}
    assert marked_options(RetrieverConfig, Mark.ENVIRONMENT) == placed | {
        "threads",
        "timeout_s",
        "retries",
        "cache_size",
    }


def test_limits_of_passages_answer_to_their_former_names():
    config = configure(
        "--ircot.max_passage_words", "7", "--ircot.max_paragraph_words", "8", "--ircot.top_k", "9"
    ).ircot
    assert (config.max_collected_words, config.max_shown_words, config.k_per_step) == (7, 8, 9)
    config = configure("--one_step.max_passage_words", "7", "--one_step.max_paragraph_words", "8").one_step
    assert (config.max_collected_words, config.max_shown_words) == (7, 8)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (
            ["--ircot.preset", "papr"],
            "is 'papr', but it should be 'paper', .*: did you mean 'paper'",
        ),
        (["--ircot.preset", "paper"], "few-shot: name a file"),
        (["--limit"], "'limit' has no value"),
        (["stray"], "unexpected argument 'stray'"),
        (["--config", "nowhere.yaml"], "no configuration file 'nowhere.yaml'"),
        (["--corag.N", "0"], "'corag.chains' is '0', but it should be greater than or equal to 1"),
    ],
)
def test_mistakes_on_the_command_line(argv, complaint):
    with pytest.raises(ConfigError, match=complaint):
        configure(*argv)


def test_mistakes_in_a_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("ircot:\n  paragraph_budgt: 9\n")
    with raises_message(ConfigError):
        configure("--config", str(file))
    file.write_text("retriver:\n  index: indexes/mine\n")
    with raises_message(ConfigError):
        configure("--config", str(file))
    file.write_text("- a list")
    with raises_message(ConfigError):
        configure("--config", str(file))
    file.write_text("a: [")
    with raises_message(ConfigError):
        configure("--config", str(file))


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'"),
        (["run"], "no questions were given"),
        (["run", "--questions", "missing.jsonl", "--method", "closed_book"], "missing.jsonl"),
    ],
)
def test_user_errors_are_one_sentence_and_status_2(argv, complaint, capsys):
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err and "Traceback" not in printed.err and printed.out == ""


def heavy_imports(code):
    """Run code in a fresh Python and return which heavy packages it had imported at its end."""
    probe = f"{code}\nimport sys; print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    return output.splitlines()[-1].split()[1:]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_without_heavy_imports(command):
    help_of = (
        f"try:\n    main([*'{command}'.split(), '--help'])\nexcept SystemExit as e:\n    assert e.code == 0"
    )
    assert heavy_imports(f"from corag.cli.main import main\n{help_of}") == []
