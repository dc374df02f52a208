"""Words and sentences of any script; where English stands, the results are those of the plain rules."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.chains.conventions import clip_text
from corag.core.language.sentences import first_sentence, sentence_end, split_sentences
from corag.core.language.words import (
    count_words,
    first_words,
    is_unspaced,
    line_joint,
    squeeze_spaces,
    word_spans,
)
from corag.core.passage_pool import PassagePool
from corag.core.prompting.render import clip_words
from corag.core.types import Hit, Passage

CHINESE = "杭州是浙江省的省会。它位于钱塘江边！"
THAI = "เชียงใหม่เป็นเมืองที่ใหญ่ที่สุดในภาคเหนือ"
_MIXED = st.text(st.sampled_from([*"杭州是。「」（）เมือง กຂំ\u200b𠮷ー3a,.-'\" \n\té!?"]), max_size=60)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (CHINESE, ["杭州是浙江省的省会。", "它位于钱塘江边！"]),
        ("“走吧。”他说。他走了……很远。", ["“走吧。”他说。", "他走了……很远。"]),
        ("“走吧。” “不。”他说。", ["“走吧。”", "“不。”他说。"]),
        ("真的吗?是的!好", ["真的吗?", "是的!", "好"]),
        ("「帰る。」と言った。彼は帰った｡終わり", ["「帰る。」と言った。", "彼は帰った｡", "終わり"]),
        ("値は２．５です．次は３です．", ["値は２．５です．", "次は３です．"]),
        ("यह नदी है। वह बहती है॥१॥ ठीक॥", ["यह नदी है।", "वह बहती है॥१॥", "ठीक॥"]),
        ("أين النهر؟ هنا. حقا؟! نعم", ["أين النهر؟", "هنا.", "حقا؟!", "نعم"]),
        ("یہ دریا ہے۔وہ بہتا ہے۔", ["یہ دریا ہے۔", "وہ بہتا ہے۔"]),
        ("Ես գետ եմ։ Դու գնա: Նա եկավ։", ["Ես գետ եմ։", "Դու գնա:", "Նա եկավ։"]),
        ("ወንዙ የት ነው፧ እዚህ ነው። አዎ፡፡ ደህና", ["ወንዙ የት ነው፧", "እዚህ ነው።", "አዎ፡፡", "ደህና"]),
        ("ទន្លេធំ។ វាហូរ។", ["ទន្លេធំ។", "វាហូរ។"]),
        ("မြစ်ကြီး။ စီးသည်။", ["မြစ်ကြီး။", "စီးသည်။"]),
        ("Πού είναι; Εδώ είναι. Ναι;", ["Πού είναι;", "Εδώ είναι.", "Ναι;"]),
        ("А. С. Попов родился здесь. Он учился.", ["А. С. Попов родился здесь.", "Он учился."]),
        ("Он сказал: «Да.» Потом ушёл.", ["Он сказал: «Да.»", "Потом ушёл."]),
        ("„Ja.“ Er ging. Was? Nein!", ["„Ja.“", "Er ging.", "Was?", "Nein!"]),
        ("ในปี พ.ศ. ๒๕๖๐ มีคน ๓ คน", ["ในปี พ.ศ. ๒๕๖๐ มีคน ๓ คน"]),
        ("Mr. Smith of the U.S. left at 3.5. Did he? “Yes.” So 東京。", [
            "Mr. Smith of the U.S. left at 3.5.", "Did he?", "“Yes.”", "So 東京。"]),
        ("Items; a, b: c. see below. Then", ["Items; a, b: c. see below.", "Then"]),
    ],
)  # fmt: skip
def test_sentences_end_at_the_marks_of_their_script(text: str, sentences: list[str]) -> None:
    assert list(split_sentences(text)) == sentences
    assert first_sentence(text) == sentences[0]
    assert text[: sentence_end(text)] == sentences[0]


def test_a_long_line_of_two_scripts_takes_no_longer_than_its_length_says() -> None:
    text = "The town sells salt. " * 5_000 + "好。"
    started = time.process_time()
    assert sum(1 for _ in split_sentences(text)) == 5_001
    assert count_words(text) == 20_001
    assert time.process_time() - started < 5, (
        "it was 30 seconds for a fifth of it when ends were looked for anew"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Oslo, Norway - 5,000", 4),
        ("naïve “friends”", 2),
        ("杭州是浙江省的省会。", 5),
        ("「東京」は、首都です。", 4),
        (THAI, 9),
        ("រាជធានីនៃប្រទេសកម្ពុជា", 4),
        ("GPT-4模型，2023年", 4),
        ("𠮷野家", 2),
        ("한국어 문장", 2),
    ],
)
def test_words_are_counted_in_any_script(text: str, words: int) -> None:
    assert count_words(text) == words
    assert len(list(word_spans(text))) == words


def test_a_line_break_within_a_text_without_spaces_is_no_space() -> None:
    assert line_joint("风景名", "胜。") == line_joint("好，", "许多") == line_joint("เป็น", "เมือง") == ""
    assert line_joint("a town", "in 浙江") == line_joint("浙江", "Province") == line_joint("", "浙江") == " "
    assert squeeze_spaces("杭州\n  是 浙江省，\n在\nChina \n now") == "杭州是 浙江省，在 China now"
    assert squeeze_spaces("한국\n수도 เป็น\nเมือง") == "한국 수도 เป็น เมือง", "as browsers show them"


@given(_MIXED)
def test_words_cover_all_but_white_space_in_order(text: str) -> None:
    spans = list(word_spans(text))
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert all(start < end for start, end in spans)
    assert count_words(text) == len(spans)


@given(_MIXED)
def test_sentences_cover_all_but_white_space_in_order(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@given(st.text(st.characters(max_codepoint=0x24F), max_size=80), st.integers(1, 12))
def test_latin_text_is_counted_and_cut_at_spaces_as_ever(text: str, most: int) -> None:
    assert not is_unspaced(text)
    assert count_words(text) == len(text.split())
    words = text.split(" ")
    assert clip_words(text, most) == (text if len(words) <= most else " ".join(words[:most]))


def test_passages_of_scripts_without_spaces_are_cut_at_words_in_prompts() -> None:
    assert clip_words(CHINESE, 3) == "杭州是浙江省"
    assert clip_words(CHINESE, 100) == CHINESE
    assert first_words(THAI, 2) == "เชียงใหม่เป็น"
    assert clip_text("杭州是浙江省的省会", 4, len) == "杭州是", "by tokens too, here characters"
    pool = PassagePool(9, max_words=7)
    pool.add([Hit(Passage("short", "", "杭州是浙江省的省会。"), 1.0), Hit(Passage("long", "", CHINESE), 1.0)])
    assert pool.ids == ("short",)
