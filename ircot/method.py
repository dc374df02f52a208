"""IRCoT: interleaving retrieval with chain-of-thought reasoning (Trivedi et al., ACL 2023, arXiv 2212.10509).

Released code: StonyBrookNLP/ircot.

Retrieve with the question; then think one sentence, retrieve with that sentence, and so on; at the end a
separate reader answers from everything collected. Where paper and released code differ, presets name the
side that they take. What IRCoT shares with other methods stands in ``corag/core/``: the passages that it
collects
(``passage_pool.py``), its reader (``reader.py``), how sentences end (``sentences.py``) and answers are stated
(``text.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.language.sentences import first_sentence
from corag.core.language.text import extract_answer, question_words_note, stated_answer, strip_question_words
from corag.core.method import Method
from corag.core.options.names import NameOrPath
from corag.core.passage_pool import PassagePool
from corag.core.prompting.demonstrations import BESIDE, Demonstration, add_prefix, fit_demonstrations
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import load_layout, render_demonstrations, render_passages
from corag.core.prompting.template import Template
from corag.core.reader import ANSWER, READER_FOR_DOCUMENTS, REASON, ReaderConfig, read
from corag.core.tools import Tools
from corag.core.types import Passage, Question, ReadAnswer

PROMPTS = Path(__file__).parent / "prompts"

# How the paper's code searches: Elasticsearch's default similarity (BM25 with k1 1.2 and b 0.75) on title and
# text, whose scores add. `--retriever.bm25 ircot` is made of it.
BM25 = (1.2, 0.75, ("title", "text"))

_FEW_SHOT = {"stop_rule": "strict", "reader": "cot", "max_thought_tokens": 300, "max_answer_tokens": 300}

_STOP_SEQUENCE = "answer is:"


@dataclass(frozen=True)
class IRCoTConfig(ReaderConfig, section="ircot"):
    """Options of IRCoT."""

    preset: Literal["paper", "paper_code", "paper_flan", "zero_shot"] = "zero_shot"
    """values for the other options: "paper" (few-shot, 8 steps, strict exit rule; give ``demonstrations``),
    "paper_code" (the same with the released code's 10 steps, and as many demonstrations as it takes; a direct
    reader's from the file "beside"), "paper_flan" (as "paper", but as the code asks Flan-T5: a line before
    each question, a direct reader with the file "beside", 200 tokens) or "zero_shot" (chat models, lenient
    exit rule)."""

    k_per_step: Annotated[int, Ge(1)] = 4
    """passages per search (also ``top_k``). The paper tunes it in {2, 4, 6, 8}."""

    max_steps: Annotated[int, Ge(1)] = 8
    """maximum number of thoughts; the last one is not searched with."""

    paragraph_budget: Annotated[int, Ge(1)] = 15
    """maximum number of passages collected over all steps."""

    stop_rule: Literal["strict", "lenient"] = "lenient"
    """"strict" ends if the newest thought matches "... answer is: X" by the released code's pattern;
    "lenient" also if it contains ``stop_sequence``, case-insensitive."""

    stop_sequence: str = _STOP_SEQUENCE
    """the words that end a lenient run; the strict rule accepts the default only."""

    strip_question_words: bool = True
    """remove who, what, is, ... from queries, as the paper does for BM25; for dense indexes try false."""

    max_thought_tokens: Annotated[int, Ge(1)] = 200
    """token limit of a thought."""

    max_collected_words: Annotated[int, Ge(1)] = 600
    """longer passages are not collected (released code: 600)."""

    reasoning_prompt: NameOrPath = "auto"
    """"auto" (``layout`` with demonstrations, else ``chat_reason``), a shipped name, a file, or a text with
    {query}, {paragraphs} and {cot_history}."""

    question_prefix: str = ""
    """a line before the question in thought prompts, and before the questions of the demonstrations. The
    reader has ``reader_question_prefix``."""

    demonstration_window: Annotated[int, Ge(0)] = 0
    """demonstrations are dropped, the last first, until they, a question as long as the longest of them and
    the reply fit this many tokens (released code, for Codex: 8000); 0 for all."""

    FOR_DOCUMENTS: ClassVar[dict[str, Any]] = READER_FOR_DOCUMENTS | {"reasoning_prompt": "reason_documents"}
    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {
        "top_k": "k_per_step", "max_passage_words": "max_collected_words", "max_iterations": "max_steps",
        "reasoning_prompt_template": "reasoning_prompt",
        # As in the released code's configurations.
        "bm25_retrieval_count": "k_per_step", "retrieval_count": "k_per_step",
        "global_max_num_paras": "paragraph_budget", "rc_qa_type": "reader",
    }  # fmt: skip
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": _FEW_SHOT,
        "paper_code": _FEW_SHOT | {
            "max_steps": 10, "demonstration_window": 8000, "reader_demonstrations": BESIDE,
        },
        "paper_flan": _FEW_SHOT | {
            "reader": "direct", "max_thought_tokens": 200, "max_answer_tokens": 200,
            "question_prefix": REASON, "reader_question_prefix": ANSWER, "reader_demonstrations": BESIDE,
        },
        "zero_shot": {},
    }  # fmt: skip

    def __post_init__(self) -> None:
        if not self.stop_sequence.strip():
            raise ConfigError("ircot's stop_sequence is blank, which every thought holds: give it words.")
        if self.stop_rule == "strict" and self.stop_sequence != _STOP_SEQUENCE:
            raise ConfigError(
                f"ircot's stop_sequence is '{self.stop_sequence}', but stop_rule 'strict' (preset "
                f"'{self.preset}') ends at '{_STOP_SEQUENCE}' alone: add ircot.stop_rule=lenient, or leave "
                "stop_sequence out."
            )
        if self.preset != "zero_shot" and not self.demonstrations and self.reasoning_prompt == "auto":
            raise ConfigError(
                f"ircot's preset '{self.preset}' is few-shot: name a file in IRCoT's format with "
                "'ircot.demonstrations', or 'default' for the shipped ones, or use the preset 'zero_shot'."
            )

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations of thinking."""
        prefix, prefixes = self.question_prefix, self.prefixes()
        return tuple(each.with_prefix(prefix, prefixes) for each in super().examples())

    def prefixes(self) -> tuple[str, ...]:
        """Lines that demonstrations may have before their questions already, for thinking or reading."""
        return (self.question_prefix, *super().prefixes())

    def thought_fields(self) -> tuple[str, ...]:
        """The fields that the prompt of thoughts must have."""
        own = ("demonstrations",) if self.demonstrations else ()
        return ("query", "paragraphs", "cot_history", *own)

    def reasoning_template(self) -> Template:
        """Load the prompt that asks for the next thought."""
        auto = "layout" if self.demonstrations else "chat_reason"
        source = auto if self.reasoning_prompt == "auto" else self.reasoning_prompt
        return load_layout(source, PROMPTS, needs=self.thought_fields())

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that IRCoT may use."""
        return (self.reasoning_template(), *super().templates())


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One search of the loop: its query, how many passages were new, and whether it had been asked before."""

    query: str
    new_passages: int
    repeated_query: bool


@dataclass(frozen=True, slots=True)
class IRCoTAnswer(ReadAnswer):
    """IRCoT's result.

    ``passage_ids``: the collected passages, at most the budget. ``context_ids``: those that the window left
    the reader. ``retrieved_ids``: all that any search
    returned. ``stopped``: "answer" (the newest thought states one), "max_steps", "empty_generation" or
    "budget".
    """

    cot_sentences: tuple[str, ...] = ()
    retrieved_ids: tuple[str, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()


async def ircot(question: Question, tools: Tools, config: IRCoTConfig) -> IRCoTAnswer:
    """Answer one question with IRCoT (paper, section 3; released code, class ``ircot`` with a reader).

    A spent budget ends the loop; the answer is then what the thoughts so far state.
    """
    pool = new_pool(config)
    thoughts: list[str] = []
    retrievals: list[Retrieval] = []
    stop_reason = ""
    try:
        while not stop_reason:
            # Retrieve step (section 3.1): the question first, then the last thought worth looking up.
            query, new = await retrieve(question, pool, thoughts, tools, config)
            is_repeat = any(query == earlier.query for earlier in retrievals)
            retrievals.append(Retrieval(query, new, is_repeat))

            # Reason step (section 3.1): the next sentence of the chain of thought, given all paragraphs.
            thought = await next_thought(question, pool, thoughts, tools, config)
            thoughts.append(thought)
            stop_reason = exit_reason(thoughts, config)
        # Reader (section 3.2): a fresh prompt with the paragraphs, without the thoughts.
        answer, shown_ids = await final_answer(question, pool, thoughts, tools, config)
    except BudgetExhaustedError:
        stop_reason = "budget"
        answer, shown_ids = answer_of_thoughts(thoughts, config), pool.ids
    return IRCoTAnswer(
        text=answer,
        passage_ids=pool.ids,
        steps=len(thoughts),
        stopped=stop_reason,
        context_ids=shown_ids,
        cot_sentences=tuple(thoughts),
        retrieved_ids=tuple(pool.seen_ids),
        retrievals=tuple(retrievals),
    )


def new_pool(config: IRCoTConfig) -> PassagePool:
    """Return the pool that a question begins with."""
    return PassagePool(config.paragraph_budget, max_words=config.max_collected_words)


async def retrieve(
    question: Question, pool: PassagePool, thoughts: Sequence[str], tools: Tools, config: IRCoTConfig
) -> tuple[str, int]:
    """Search with the question or the last thought worth it; return the query, and how many were new."""
    query = next_query(question.text, thoughts)
    note = ""
    if config.strip_question_words:
        query, note = strip_question_words(query), question_words_note(query)
    hits = await tools.search(query, k=config.k_per_step, path=f"step {len(thoughts) + 1}", note=note)
    return query, pool.add(hits)


# Released code, ``is_reasoning_sentence``: a thought that concludes or calculates names nothing to look up.
_INFERENCE_STARTS = ("thus ", "thus,", "so ", "so,", "that is,", "therefore", "hence")
_NUMBER = r"(?:\d[\d,]*\.?\d+|\d+)"
_ARITHMETIC = re.compile(rf"{_NUMBER} [+-] {_NUMBER} = {_NUMBER}")


def next_query(question: str, thoughts: Sequence[str]) -> str:
    """Return the last thought that is not an inference; the question if there is none or it is blank.

    >>> next_query("Where was Emma's author born?", ["Jane Austen wrote Emma.", "So we need her birthplace."])
    'Jane Austen wrote Emma.'
    """
    usable = [thought for thought in thoughts if not is_inference(thought)]
    return usable[-1] if usable and usable[-1].strip() else question


def is_inference(sentence: str) -> bool:
    """Whether a sentence concludes or calculates, and so names nothing worth looking up."""
    return sentence.lower().startswith(_INFERENCE_STARTS) or _ARITHMETIC.search(sentence) is not None


async def next_thought(
    question: Question, pool: PassagePool, thoughts: list[str], tools: Tools, config: IRCoTConfig
) -> str:
    """Generate, and keep the first sentence only ("" if nothing was generated)."""
    prompt = thought_prompt(question.text, pool.passages, thoughts, tools.count_tokens, config)
    stop = ("\n",) if prompt.plain else ()  # a chat model may begin with a line break
    path = f"step {len(thoughts) + 1}"
    reply = await tools.generate(
        prompt, role="thought", max_tokens=config.max_thought_tokens, stop=stop, path=path
    )
    # Models write the whole chain at once, but only its first sentence had the paragraphs that it needed
    # (section 3.1).
    return first_sentence(reply.text)


def thought_prompt(
    query: str,
    passages: Sequence[Passage],
    thoughts: Sequence[str],
    count: Callable[[str], int],
    config: IRCoTConfig,
) -> Prompt:
    """Ask for the next sentence of the reasoning. ``count``: of a text's tokens."""
    template, window, reply = (
        config.reasoning_template(), config.demonstration_window, config.max_thought_tokens,
    )  # fmt: skip
    examples = fit_demonstrations(config.examples(), window, reply, count)
    return template.render(
        {
            "query": add_prefix(query, config.question_prefix),
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="first"),
            "cot_history": " ".join(thoughts),
            "demonstrations": render_demonstrations(examples, template),
        }
    )


def exit_reason(thoughts: list[str], config: IRCoTConfig) -> str:
    """Return why the loop ends after the newest thought, "" if it goes on."""
    newest = thoughts[-1]
    if not newest:
        return "empty_generation"
    lenient = config.stop_rule == "lenient" and config.stop_sequence.lower() in newest.lower()
    if lenient or stated_answer(newest) is not None:
        return "answer"
    return "max_steps" if len(thoughts) >= config.max_steps else ""


async def final_answer(
    question: Question, pool: PassagePool, thoughts: list[str], tools: Tools, config: IRCoTConfig
) -> tuple[str, tuple[str, ...]]:
    """Let the reader answer from all paragraphs; without one, the thoughts have to (paper, table 6).

    Return the answer, and the ids of the passages that it was given from.
    """
    if config.reader == "none":
        return answer_of_thoughts(thoughts, config), pool.ids
    window, reply = config.demonstration_window, config.max_answer_tokens
    examples = fit_demonstrations(config.reader_examples(), window, reply, tools.count_tokens)
    return await read(question, pool.passages, tools, config, examples=examples)


def answer_of_thoughts(thoughts: list[str], config: IRCoTConfig) -> str:
    """Take the answer from the chain of thought: what it states, by the rule that ended it."""
    chain = " ".join(thoughts)
    if config.stop_rule == "lenient" and stated_answer(chain) is None:
        *before, rest = re.split(re.escape(config.stop_sequence), chain, flags=re.IGNORECASE)
        if before:
            return extract_answer(rest)
    return extract_answer(chain)


METHOD = Method(
    ircot,
    IRCoTConfig,
    "interleave retrieval with a chain of thought, then read (Trivedi et al. 2023)",
    published="2022-12",
)
