"""When 'corag rounds' performs a stage again: when a file that it reads has changed, and when questions of it
have failed.
"""

import json
import sys
from dataclasses import replace

import pytest

from corag.core.errors import BackendError
from corag.core.prompting.template import load_template
from corag.generation.config import ModelConfig
from eval.datasets.sets.jsonl import question_record
from eval.experiment.run import RunConfig
from retrieval.config import RetrieverConfig
from tests.messages import raises_message
from tests.training.toy import ALL, CORAG, SAMPLE, many, write_chains
from training.config import SftConfig
from training.rows import MakeRowsConfig
from training.sample import SampleRunConfig
from training.stages import Stage, run_stage

INDEX = RetrieverConfig(index=["index"])


def performed(stage):
    """Perform a stage by a command that only notes that it was run."""
    load_template.cache_clear()  # as in another process
    log = stage.result.with_suffix(".log")
    log.unlink(missing_ok=True)
    run_stage(stage, [sys.executable, "-c", f"open({str(log)!r}, 'w')"])
    return log.exists()


FILES = {
    "questions": "one\n", "aliases": "one\n", "model/config.json": "{}", "adapter/config.json": "{}",
    "next.txt": "version: 1\n--- user\n{query} {hops}\n",
    "enough.txt": "version: 1\n--- user\n{query} {hops}\n",
}  # fmt: skip


def stage_of(kind, folder, stop):
    """A stage that reads files of the user's in a folder; ``stop``: the stop prompt among them."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "out").mkdir()
    out, model, adapter = (str(folder / name) for name in ("out", "model", "adapter"))
    corag = replace(
        CORAG, sub_query_prompt=str(folder / "next.txt"), stop_check_prompt=str(folder / "enough.txt")
    )
    if kind is SftConfig:
        return Stage(folder / "out", SftConfig(rows=["rows"], out=out, model=model, adapter=adapter))
    if kind is MakeRowsConfig:
        write_chains(folder / "chains", SAMPLE, corag)
        tasks = ("sub_query", "stop") if stop else ("sub_query",)
        options = MakeRowsConfig(
            [str(folder / "chains")], out, model, rows=replace(ALL, tasks=tasks), retriever=INDEX
        )
        return Stage(folder / "out", options)
    asked = {name: str(folder / name) for name in ("questions", "aliases")} | {"retriever": INDEX, "out": out}
    asked["corag"] = replace(corag, stop="check" if stop else "length")
    asked["model"] = ModelConfig(name=model, adapter=adapter)
    return Stage(folder / "out", kind(**asked, **({"method": ["corag"]} if kind is RunConfig else {})))


ASKING = ("questions", "aliases", "next.txt", "model/config.json", "adapter/config.json")


@pytest.mark.parametrize(
    ("kind", "stop", "read"),
    [
        (SampleRunConfig, False, ASKING),
        (RunConfig, True, (*ASKING, "enough.txt")),
        (MakeRowsConfig, False, ("model/config.json",)),
        (MakeRowsConfig, True, ("model/config.json", "enough.txt")),
        (SftConfig, False, ("model/config.json", "adapter/config.json")),
    ],
)
def test_a_stage_is_performed_again_when_a_file_that_it_reads_has_changed(kind, stop, read, tmp_path):
    stage = stage_of(kind, tmp_path, stop)
    assert [performed(stage), performed(stage)] == [True, False]
    for name, text in FILES.items():
        if kind is MakeRowsConfig and name == "next.txt":
            continue  # refused: chains are replies to these very words
        (tmp_path / name).write_text(f"{text}more")
        assert [performed(stage), performed(stage)] == [name in read, False], name


def test_a_stage_is_performed_again_when_its_options_or_a_stage_before_have_changed(tmp_path):
    def tuned(name, *after, **options):
        (tmp_path / name).mkdir(exist_ok=True)
        before = tuple(tmp_path / each for each in after)
        return Stage(tmp_path / name, SftConfig(rows=["rows"], out=name, **options), before)

    first, second = tuned("first", seed=1), tuned("second", "first")
    assert [performed(each) for each in (first, first, second, second)] == [True, False, True, False]
    watched = tuned("first", seed=1, logging_steps=3, report_to=("wandb",))
    assert not performed(watched), "what cannot change a result"
    changed = tuned("first", seed=2)
    assert performed(changed) and performed(second)
    changed.result.rmdir()
    assert performed(changed) and performed(second), "made anew, with the same options"
    for _ in range(2):
        with pytest.raises(BackendError, match="ended with exit status 3"):
            run_stage(tuned("first", seed=13), [sys.executable, "-c", "import sys; sys.exit(3)"])
    assert performed(changed)


def test_a_stage_of_which_questions_failed_is_performed_again(tmp_path):
    """And stops the loop, but for failures, each with its row, of answers that only its table wants."""
    file, out = tmp_path / "questions.jsonl", tmp_path / "answers"
    file.write_text("".join(json.dumps(question_record(each)) + "\n" for each in many(2)))
    asked = {"questions": str(file), "retriever": INDEX, "out": str(out)}
    lacking = [sys.executable, "-c", "import sys; sys.exit(1)"]
    chains = Stage(tmp_path / "chains", SampleRunConfig(**asked))
    with raises_message(BackendError):
        run_stage(chains, lacking)
    answers = Stage(out, RunConfig(**asked, method=["corag"]))
    for question in many(2):
        with pytest.raises(BackendError, match="its own message stands above"):
            run_stage(answers, lacking)  # the model was lost before the question
        write_chains(out / "corag", SAMPLE, CORAG, questions=[question], failing="birthplace")
    run_stage(answers, lacking)
    chains.result.mkdir()
    for stage in (chains, answers):
        assert [performed(stage), performed(stage)] == [True, False]
