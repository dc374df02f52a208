"""The answer normaliser: SQuAD's rule, and MLQA's for other scripts than Latin.

And what other people's text must lose before it is printed.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Iterable

from corag.core.language.words import UNSPACED_LETTERS

# What commands a terminal (but line breaks and tabs), halves of characters, and marks that turn the direction
# of all that follows on the line.
_COMMANDS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LATIN = re.compile("[A-Za-z\u00aa-\u02af\u1e00-\u1eff]")
_OTHER_LETTER = re.compile("[\u0370-\u1cff\u1f00-\u1fff\u2c00-\ua71f\ua800-\ufaff\ufb13-\U000effff]")
_CHARACTER = re.compile(f"[{UNSPACED_LETTERS}]")
_FULL_STOPS = tuple(".。．।۔።។။։")
_SENTENCE_END = re.compile(r"[.!?;\n。！？؟۔।]")
_NOTHING = re.compile(
    r"\W*(?:(?:none|n/?a|unknown)\)?\s*(?:[.,;:–—].*)?|(?:nothing|null)\W*)?", re.IGNORECASE | re.DOTALL
)


def printable(text: str) -> str:
    r"""Return a text of anybody's for a terminal: with spaces for what would command it, or turn text around.

    >>> printable("Oslo, \u202eolsO\nor\x07 not")
    'Oslo,  olsO\nor  not'
    """
    return _COMMANDS.sub(" ", text)


def reply_excerpt(text: str, most: int) -> str:
    r"""Return how a server's reply that is not understood begins, on one line of ``most`` characters.

    >>> reply_excerpt("<html>\n<title>404</title>", 80)
    'a web page'
    >>> reply_excerpt("no such\nmodel", 80)
    "'no such model'"
    """
    excerpt = " ".join(printable(text[: 10 * most]).split())
    if excerpt.startswith("<"):
        return "a web page"
    return f"'{excerpt}'" if len(excerpt) <= most else f"'{excerpt[:most]}...'"


def normalize_answer(text: str) -> str:
    """Return what two spellings of an answer have in common, by the rule for its script.

    :func:`normalize_as_squad`, or :func:`normalize_as_mlqa` for a text most of whose letters are of another
    script than Latin.

    >>> normalize_answer("The U.S.  Open"), normalize_answer("《红楼梦》。")
    ('us open', '红 楼 梦')
    """
    return normalize_as_mlqa(text) if is_other_script(text) else normalize_as_squad(text)


def normalize_as_squad(text: str) -> str:
    """Lower-case, delete ASCII punctuation, drop a/an/the, squeeze spaces, in that order (SQuAD, 2016).

    Punctuation outside ASCII stays, as in the official scripts of HotpotQA, 2WikiMultihopQA and MuSiQue.
    Characters are composed (NFC): what looks alike is alike.
    """
    letters = unicodedata.normalize("NFC", text).lower().translate(_PUNCTUATION)
    # Once more: punctuation may have stood between a letter and its mark.
    return " ".join(_ARTICLES.sub(" ", unicodedata.normalize("NFC", letters)).split())


def normalize_as_mlqa(text: str) -> str:
    """Return a text's words, or characters, without punctuation of any script (Lewis et al. 2020: MLQA).

    In scripts that set no spaces between words, each character with its marks stands by itself, as MLQA's
    official script has it for Chinese ("mixed segmentation"). Full-width and other forms of a character are
    one (NFKC), which is ours.

    >>> normalize_as_mlqa("２０２０年の「Tokyo 2020」")
    '2020 年 の tokyo 2020'
    """
    letters = "".join(
        character
        for character in unicodedata.normalize("NFKC", text).lower()
        if unicodedata.category(character)[0] != "P" and character not in string.punctuation
    )
    parts: list[str] = []
    single = False  # whether the character before stands by itself
    for character in unicodedata.normalize("NFKC", letters):
        if not (single and unicodedata.category(character)[0] == "M"):  # a mark belongs to its letter
            before, single = single, _CHARACTER.match(character) is not None
            if single or before:
                parts.append(" ")
        parts.append(character)
    return " ".join(_ARTICLES.sub(" ", "".join(parts)).split())


def is_other_script(text: str) -> bool:
    """Whether most letters of a text are of another script than Latin.

    >>> is_other_script("Москва"), is_other_script("Tokyo (東京)"), is_other_script("1998")
    (True, False, False)
    """
    if text.isascii() or not (others := len(_OTHER_LETTER.findall(text))):
        return False
    return others > len(_LATIN.findall(text))


def ballot(answer: str) -> str:
    """Return what votes for an answer are counted by: normalised, or as written if that leaves nothing.

    >>> ballot("The Oslo"), ballot("A"), ballot(" ")
    ('oslo', 'a', '')
    """
    return normalize_answer(answer) or " ".join(answer.casefold().split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether the normalised prediction equals any normalised answer."""
    normal_form = normalize_answer(prediction)
    return any(normal_form == normalize_answer(answer) for answer in answers)


def mentions(texts: Iterable[str], answers: Iterable[str]) -> bool:
    """Whether any text holds any answer as a run of whole normalised words.

    >>> mentions(["Oslo is the capital of Norway."], ["The Capital"])
    True
    >>> mentions(["长沙是湖南省的省会。"], ["湖南"])
    True
    """
    # By the answer's rule; a text of another script splits what stands between its own letters, too.
    by_rule = {True: list[str](), False: list[str]()}
    for answer in answers:
        by_rule[is_other_script(answer)].append(f" {normalize_answer(answer)} ")
    for text in texts:
        for other, padded_answers in by_rule.items():
            if padded_answers:
                padded_text = f" {normalize_as_mlqa(text) if other else normalize_answer(text)} "
                if any(answer in padded_text for answer in padded_answers):
                    return True
    return False


_QUESTION_WORDS = frozenset({"who", "what", "when", "where", "why", "which", "how", "does", "is"})
_GOES_ON = re.compile(r"[,;:]|\b(?:but|however|though)\b", re.IGNORECASE)  # an answer, after a refusal
# Greedy, so that the last "answer is" of a line counts.
_ANSWER = re.compile(r".* answer is:? (.*)")
# Chat models write it in bold type, and the answer on a line of its own.
_STATES = re.compile(r" answer is[*_]*:[*_]*[ \n]+")


def stated_answer(sentence: str) -> str | None:
    """Return what follows "answer is", or None (IRCoT, released code: exit rule and reader).

    The pattern is case-sensitive, wants text before it and one space after it; the last occurrence on the
    first line wins, and one closing full stop is removed.

    >>> stated_answer("So the answer is: Paris.")
    'Paris'
    >>> stated_answer("answer is: Paris.") is None
    True
    """
    match = _ANSWER.match(sentence)
    return None if match is None else _without_full_stop(match.group(1))


def extract_answer(reply: str) -> str:
    r"""Take the answer out of a reader's reply: what its last line that states one states, else line one.

    As in IRCoT's released code, one pair of double quotes around the reply goes first, one closing full stop
    last, and a JSON string or list of strings is decoded (lists are joined by spaces). There, replies have
    one line; chat models write several, of which the first may only announce the answer.

    >>> extract_answer("The singer was born in Oslo.\nSo the answer is: Oslo.")
    'Oslo'
    >>> extract_answer("Oslo."), extract_answer("**The answer is:**\n\nOslo")
    ('Oslo', 'Oslo')
    """
    lines = _STATES.sub(" answer is: ", _unquote(reply.strip())).splitlines()
    # "(The answer is taken from the last passage.)" is a remark.
    stating = [line for line in lines if not line.startswith("(")] or lines
    statements = [answer for line in stating if (answer := stated_answer(line)) is not None]
    answer = statements[-1].strip() if statements else _without_full_stop(first_line(lines))
    if answer.startswith(("[", '"')):
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, brackets without end
            return answer
        parts = value if isinstance(value, list) else [value]
        if all(isinstance(part, str) for part in parts):
            return " ".join(parts)
    return answer


def first_line(lines: Iterable[str]) -> str:
    """Return the first of some lines that has text and does not only announce the next one, by a colon.

    >>> first_line(["", "The answer is:", "Oslo"]), first_line(["Answer:"])
    ('Oslo', 'Answer:')
    """
    filled = [stripped for line in lines if (stripped := line.strip())]
    return next((line for line in filled if not line.endswith(":")), filled[0] if filled else "")


def _without_full_stop(text: str) -> str:
    return text[:-1] if text.endswith(_FULL_STOPS) else text


def _unquote(text: str) -> str:
    return text[1:-1].strip() if len(text) >= 2 and text[0] == text[-1] == '"' else text


def strip_question_words(query: str) -> str:
    """Drop tokens that are exactly a question word, whatever their case.

    "What's" and "who," stay (IRCoT, released code).

    >>> strip_question_words("Where is the author of Emma from?")
    'the author of Emma from?'
    """
    return " ".join(token for token in query.split(" ") if token.lower() not in _QUESTION_WORDS)


def question_words_note(query: str) -> str:
    """Return what to tell a reader of a search whose query lost its question words; "" if it had none.

    >>> question_words_note("Where is the author of Emma from?")
    'left out of the query: Where, is'
    """
    words = [token for token in query.split(" ") if token.lower() in _QUESTION_WORDS]
    return f"left out of the query: {', '.join(words)}" if words else ""


def says_none(value: str) -> bool:
    """Whether a value that a model wrote says as a whole that there is none, perhaps with a reason after it.

    >>> [says_none(value) for value in ("None.", "n/a", "", "None of them was born there", "nonexistent")]
    [True, True, True, False, False]
    """
    return _NOTHING.fullmatch(value) is not None


def clean_sub_answer(text: str, refusal: str) -> tuple[str, bool]:
    """Return a sub-answer on one line, and whether it refuses: it is empty or begins with the refusal.

    ``refusal``: a method's sentence for it. A sub-answer that refuses becomes this sentence. Where its first
    sentence goes on after the refusal, that is one of a few words ("None" may begin a name), and nothing
    follows in which there could be an answer after all.

    >>> clean_sub_answer("No information found in the passages.", "No information found")
    ('No information found', True)
    >>> clean_sub_answer("No information found on her, but he was born in Oslo.", "No information found")[1]
    False
    """
    answer = " ".join(text.split())
    first = _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
    words, first_words = normalize_answer(refusal), normalize_answer(first)
    goes_on = len(words.split()) > 2 and first_words.startswith(f"{words} ")
    is_refusal = not answer or words in (first_words, normalize_answer(answer))
    is_refusal = is_refusal or (goes_on and not _GOES_ON.search(first))
    return (refusal if is_refusal else answer), is_refusal


def shared_length(text: str, other: str) -> int:
    """Return how many characters two texts have in common from the first on."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((index for index, (one, two) in pairs if one != two), min(len(text), len(other)))
