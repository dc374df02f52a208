"""The reader: one call that turns a question and its passages into an answer.

Shared by every method that ends in one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from annotated_types import Ge

from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.options.names import NameOrPath
from corag.core.prompting.demonstrations import (
    BESIDE,
    Demonstration,
    DemonstrationConfig,
    add_prefix,
    bare_answers,
    demonstration_file,
    read_demonstrations,
)
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import load_layout, render_demonstrations, render_passages
from corag.core.prompting.shorten import texts_left
from corag.core.prompting.template import Template
from corag.core.protocols import Generation
from corag.core.tools import Tools
from corag.core.types import Passage, Question, ReadAnswer

# What IRCoT's authors tell Flan-T5 before each question; it stands in their files of worked examples, too
# (released code: question_prefix in base_configs/*flan_t5*).
REASON = "Answer the following question by reasoning step-by-step."
ANSWER = "Answer the following question."
# Values of methods whose answer is what the reader writes.
READER_FOR_DOCUMENTS = {"qa_prompt": "chat_documents", "max_answer_tokens": 400}


@dataclass(frozen=True)
class ReaderConfig(DemonstrationConfig):
    """Options of the reader, under the same names in every method, and of demonstrations."""

    reader: Literal["direct", "cot", "none"] = "direct"
    """"direct" generates the answer alone, "cot" a chain of thought that ends in it; "none" skips the reader
    if the method has an answer of its own."""

    qa_prompt: NameOrPath = "auto"
    """the prompt: "auto" (``layout`` with demonstrations, else ``chat_direct`` or ``chat_cot``), the name of
    a shipped prompt, a file, or a text with {query} and {paragraphs}."""

    reader_demonstrations: NameOrPath = ""
    """few-shot demonstrations of the reader, in the same format; "" derives them from ``demonstrations`` (for
    a direct reader: without chains of thought). "beside" is, for a direct reader, the file of bare answers
    that IRCoT's authors name after ``demonstrations``, with ``_direct_qa_`` for ``_cot_qa_``; it has to be
    there. For other names and readers it is ""."""

    demonstration_count: Annotated[int, Ge(0)] = 15
    max_answer_tokens: Annotated[int, Ge(1)] = 200
    """token limit of the reader's answer."""

    max_shown_words: Annotated[int, Ge(1)] = 350
    """passages are truncated to this many words in prompts (IRCoT: 350)."""

    reader_question_prefix: str = ""
    """a line before the reader's question and before those of its demonstrations, in place of a line of
    IRCoT's authors that they have already."""

    ALIASES: ClassVar[dict[str, str]] = {
        "max_paragraph_words": "max_shown_words",
        "qa_prompt_template": "qa_prompt",
    }

    def for_documents(self) -> Self:
        """Return these options with the values for documents, if no worked examples say how to answer."""
        return self if self.few_shot_fields() or self.reader != "direct" else super().for_documents()

    def qa_fields(self) -> tuple[str, ...]:
        """The fields that the prompt must have."""
        return ("query", "paragraphs", *self.few_shot_fields())

    def few_shot_fields(self) -> tuple[str, ...]:
        """The field of demonstrations, also if the reader alone has some."""
        return ("demonstrations",) if self.demonstrations or self.reader_file() else ()

    def qa_template(self) -> Template:
        """Load the reader's prompt."""
        auto = "layout" if self.few_shot_fields() else f"chat_{self.reader}"
        return load_layout(auto if self.qa_prompt == "auto" else self.qa_prompt, needs=self.qa_fields())

    def reader_file(self) -> str:
        """The file of the reader's own demonstrations, "" if they are made of the others.

        IRCoT's authors name a direct reader's after that with chains of thought: it has other distractors.
        """
        if self.reader_demonstrations != BESIDE:
            return self.reader_demonstrations
        folder, name = os.path.split(self.demonstrations)
        direct = os.path.join(folder, name.replace("_cot_qa_", "_direct_qa_"))
        return direct if self.reader == "direct" and "_cot_qa_" in name else ""

    def prefixes(self) -> tuple[str, ...]:
        """Lines that demonstrations may have before their questions already."""
        return (self.reader_question_prefix, REASON, ANSWER)

    def reader_examples(self) -> tuple[Demonstration, ...]:
        """Load the reader's demonstrations, with bare answers for a direct one."""
        reader_file, ids = self.reader_file(), tuple(self.demonstration_ids)
        file = demonstration_file(reader_file or self.demonstrations, self.shipped_examples())
        examples = read_demonstrations(file, self.demonstration_count, ids)
        if self.reader == "direct":
            examples = bare_answers(examples, file, of_thoughts=not reader_file)
        return tuple(each.with_prefix(self.reader_question_prefix, self.prefixes()) for each in examples)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the method may use."""
        return () if self.reader == "none" else (self.qa_template(),)

    def files(self) -> Mapping[str, str]:
        """The files of demonstrations."""
        files = filter(None, (self.demonstrations, self.reader_file()))
        return {file: demonstration_file(file, self.shipped_examples()) for file in files}

    def check_files(self) -> None:
        """Load prompts and demonstrations."""
        super().check_files()
        file = self.reader_file()
        if self.reader_demonstrations == BESIDE and file and not os.path.isfile(file):
            raise ConfigError(
                f"{self.SECTION}'s reader_demonstrations is '{BESIDE}', but there is no file '{file}': put "
                'it there (it is the authors\'), or write "" for bare answers from the chains of thought.'
            )
        self.reader_examples()


async def read(
    question: Question,
    passages: Sequence[Passage],
    tools: Tools,
    config: ReaderConfig,
    *,
    examples: Sequence[Demonstration] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Answer the question from the passages, with a fresh prompt: no thoughts (IRCoT, section 3.2).

    ``examples``: as for :func:`reader_prompt`. Return the answer, and the ids of the passages that the prompt
    showed.
    """
    return await _ask(reader_prompt(question, passages, config, examples=examples), passages, tools, config)


async def _ask(
    prompt: Prompt, passages: Sequence[Passage], tools: Tools, config: ReaderConfig
) -> tuple[str, tuple[str, ...]]:
    template = config.qa_template()
    reply = await generate_answer(prompt, config.max_answer_tokens, tools, is_answer=template.whole)
    ids = tuple(passage.id for passage in passages)
    count = len(texts_left(prompt, "passage", reply.shortening))
    # As :func:`reader_prompt` has them leave a prompt that is too long.
    return template.read_answer(reply.text), ids[:count] if template.cites else ids[len(ids) - count :]


async def read_once(
    question: Question, passages: Sequence[Passage], tools: Tools, config: ReaderConfig
) -> ReadAnswer:
    """Answer as :func:`read` does, with the demonstrations and passages that the token budget allows.

    ``stopped``: "read", or "budget" if it did not allow all; ``steps`` is 0 if it did not even allow to ask.
    """
    ids = tuple(passage.id for passage in passages)
    whole = reader_prompt(question, passages, config)
    prompt = tools.afford(whole, config.max_answer_tokens)
    try:
        answer, shown = await _ask(prompt, passages, tools, config)
    except BudgetExhaustedError:
        return ReadAnswer("", ids, stopped="budget")
    return ReadAnswer(answer, ids, 1, "read" if prompt == whole else "budget", shown)


async def generate_answer(
    prompt: Prompt,
    max_tokens: int,
    tools: Tools,
    *,
    role: str = "reader",
    path: str = "",
    is_answer: bool = False,
) -> Generation:
    """Have the final answer written; one that a plain prompt asks for ends with its line.

    ``is_answer``: the reply is all of it, and the last word.
    """
    stop = ("\n",) if prompt.plain else ()
    return await tools.generate(
        prompt, role=role, max_tokens=max_tokens, stop=stop, path=path, is_answer=is_answer
    )


def reader_prompt(
    question: Question,
    passages: Sequence[Passage],
    config: ReaderConfig,
    *,
    goes_first: Literal["first", "last"] = "first",
    examples: Sequence[Demonstration] | None = None,
) -> Prompt:
    """Return what the reader is asked.

    ``goes_first``: as for :func:`render_passages`, by default IRCoT's rule; where they are cited, the last,
    which is the worst. ``examples``: those that are shown, if not all of ``config.reader_examples()``.
    """
    template = config.qa_template()
    goes_first = "last" if template.cites else goes_first
    return template.render(
        {
            "query": add_prefix(question.text, config.reader_question_prefix),
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first=goes_first),
            "demonstrations": render_demonstrations(
                config.reader_examples() if examples is None else examples, template
            ),
            "cot_history": "",
        }
    )
