"""Web pages and Markdown as people write them: what is read, what is left out, and that it is counted."""

from __future__ import annotations

import pytest

from retrieval.documents.document import Document
from retrieval.documents.markdown import read_markdown
from retrieval.documents.markup import read_html

_PROSE = "The town makes glass and sends it to all of its neighbours by cart. " * 8


def page(text: str) -> Document:
    return read_html(text.encode(), "file")


def lines(document: Document) -> list[str]:
    return [" > ".join((*block.headings, block.text)) for block in document.blocks]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("10<sup>6</sup> cells, 6.02×10<sup>23</sup>, 10<sup>-3</sup> m", "10^6 cells, 6.02×10^23, 10^-3 m"),
        ("H<sub>2</sub>O, Fe(OH)<sub>3</sub>, x<sub>i</sub>y", "H2O, Fe(OH)3, x_i y"),
        ("log<sub>2</sub>10 and 101<sub>2</sub>", "log_2 10 and 101_2"),
        ("5 km<sup>2</sup>, 3 metres<sup>2</sup>, e<sup>x+1</sup>", "5 km^2, 3 metres^2, e^(x+1)"),
        ("the 19<sup>th</sup>, 1<sup>er</sup>, M<sup>me</sup>, n<sup>o</sup> 5", "the 19th, 1er, Mme, no 5"),
        ("The town<sup>[1]</sup> grew<sup>2</sup> fast.<sup>3</sup>", "The town [1] grew [2] fast. [3]"),
        ("town<a class='footnote' href='#f4'>4</a> and <a href='#_ftn1'>[1]</a>.", "town [4] and [1]."),
        ("Sales<sup>(1)</sup> Costs<sup>a</sup> Total<sup>*</sup>", "Sales [1] Costs [a] Total [*]"),
        ("map<sup>1,2</sup> war<sup>3–5</sup>", "map [1,2] war [3–5]"),
        ("fact<sup>[<i>citation needed</i>]</sup> x<sup> </sup>y", "fact [citation needed] xy"),
        ("word<sup>new!</sup> next<sup>see the other page</sup>", "word^(new!) next see the other page"),
        ("<sup>1</sup>See the town.", "[1] See the town."),
        ("a<sup class='footnote'>[<a href='#_fn1'>1</a>]</sup> b[<a href='#fn2'>2</a>]", "a [1] b[2]"),
        ("See <a class='reference internal' href='x.html#abs'>abs()</a>.", "See abs()."),
    ],
)  # fmt: skip
def test_what_is_raised_or_lowered_changes_no_figure_and_sticks_to_no_word(markup: str, text: str) -> None:
    assert lines(page(f"<p>{markup}</p>")) == [text]
    cells = page(f"<table><tr><td>{markup}</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>")
    assert lines(cells)[0] == f"{text} | b"


def test_formulas_keep_their_structure() -> None:
    formula = (
        "<math><semantics><mrow><mi>x</mi><mo>=</mo><mfrac><mrow><mo>-</mo><mi>b</mi></mrow><mn>2</mn></mfrac>"
        "<mo>+</mo><msup><mn>10</mn><mn>6</mn></msup><msub><mi>k</mi><mi>i</mi></msub><msqrt><mi>a</mi><mo>+</mo>"
        "<mn>1</mn></msqrt><mi>sin</mi><mi>y</mi></mrow><annotation>\\frac</annotation></semantics></math>"
    )
    assert lines(page(f"<p>So {formula} holds.</p>")) == ["So x=-b/2+10^6 k_i√(a+1)sin y holds."]
    hidden = f"<p>So <span style='display:none'>{formula}</span><img alt='x = -b/2'> holds.</p>"
    assert lines(page(hidden)) == ["So x=-b/2+10^6 k_i√(a+1)sin y holds."]


def test_headings_in_buttons_panels_and_an_articles_footer_are_text() -> None:
    document = page(
        "<h1>Leave</h1><h2><button aria-expanded=false>Sick leave</button></h2><p>Ten days.</p>"
        "<button role=tab aria-controls=p>Parental</button><div id=p role=tabpanel hidden>Twelve weeks.</div>"
        "<button><h3>Unpaid</h3></button><p hidden='until-found'>Four weeks.</p>"
        "<details><summary>Old rules</summary><p>None.</p></details>"
        "<article><header>By Ada</header><p>Travel.</p><footer>From May.</footer></article>"
        "<button>Copy</button><footer>Imprint of us</footer><noscript>Switch scripts on.</noscript>"
    )
    assert (document.title, lines(document)) == (
        "Leave",
        ["Sick leave > Ten days.", "Sick leave > Parental", "Sick leave > Twelve weeks."]
        + [f"Sick leave > Unpaid > {text}" for text in ("Four weeks.", "Old rules", "None.", "By Ada")]
        + ["Sick leave > Unpaid > Travel.", "Sick leave > Unpaid > From May."],
    )
    assert document.left_out == {
        "form fields and buttons": 1, "page headers and footers": 3,
        "text for browsers without scripts or plug-ins": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("markup", "note"),
    [
        (
            f"<h1>A</h1><p>{_PROSE * 3}</p><nav><a href=/>Home</a><p>{_PROSE}</p>",
            "112 words of text are marked",
        ),
        (f"<p>Teaser.</p><div hidden>{_PROSE}</div>", "most of its text is in hidden parts: read"),
        (
            f"<main><p>Teaser.</p></main><div>{_PROSE}</div>",
            "most of its text is in parts outside the main one",
        ),
        (f"<p>Loading</p><noscript><p>{_PROSE}</p></noscript>", "most of its text is in text for browsers"),
    ],
)
def test_what_would_keep_most_of_a_page_out_is_read_and_said(markup: str, note: str) -> None:
    document = page(markup)
    assert any(_PROSE.strip() in text for text in lines(document))
    assert len(document.notes) == 1 and document.notes[0].startswith(note)


@pytest.mark.parametrize(
    "markup",
    [
        f"<title>A<p>{_PROSE}</p>",
        f"<p>One<!-- two <b>three</b></p><p>{_PROSE}</p>",
        f"<p>One</p><script>var x;<p>{_PROSE}</p>",
    ],
)
def test_what_never_ends_does_not_begin(markup: str) -> None:
    assert _PROSE.strip() in lines(page(markup))


def test_what_is_around_a_pages_text_is_left_out_and_counted() -> None:
    document = page(
        "<title>T</title><nav><a href=/>Home</a><a href=/us>About us</a></nav>"
        "<header><h1>Opening hours</h1></header><main><div class=toc><ul><li><a href='#a'>One</a>"
        "<li><a href='#b'>Two</a><li><a href='#c'>Three</a></ul></div><h2 id=a>One</h2><p>From nine.</p>"
        "</main><div id='cookie-banner'>We use cookies</div><aside>See also</aside>"
        "<template>unused</template>"
        "<select><option>Albania</select><div hidden>not shown</div><!-- a comment --><script>code()</script>"
    )
    assert (document.title, lines(document)) == ("Opening hours", ["One > From nine."])
    assert document.left_out == {
        "navigation": 3, "tables of contents and indexes": 3, "cookie notices": 3,
        "form fields and buttons": 1, "hidden parts": 3, "parts outside the main one": 4,
    }  # fmt: skip


def test_short_pages_do_not_take_their_menus_for_text() -> None:
    menu = "".join(f"<li><a href='/{number}'>Chapter number {number}</a>" for number in range(60))
    document = page(
        f"<div hidden><ul>{menu}</ul></div><nav><ul>{menu}</ul></nav><p>Moved to another town.</p>"
    )
    assert lines(document) == ["Moved to another town."] and not document.notes
    assert document.left_out == {"hidden parts": 180, "navigation": 180}


def test_pages_in_xhtml_close_what_is_empty() -> None:
    head = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/>'
    head += '<script src="x"/></head>'
    body = '<body><div id="a"/><p>Text<a id="q"/> here</p><pre><![CDATA[a < b]]></pre></body></html>'
    document = page(head + body)
    assert lines(document) == ["Text here", "a < b"]


def test_frames_are_counted_and_what_stands_for_them_is_read() -> None:
    frames = page("<frameset><frame src='a.html'><noframes><p>No <b>frames</b></p></noframes></frameset>")
    assert lines(frames) == ["No frames"] and frames.left_out == {"embedded files and media": 1}


def test_signs_within_words_and_words_side_by_side() -> None:
    document = page(
        "<p>漢<ruby>字<rp>(</rp><rt>じ</rt><rp>)</rp></ruby> hard<wbr>ly ever&shy;more a&nbsp;b</p>"
        "<p><a>Home</a><a>About</a> <my-a>X</my-a><my-b>Y</my-b></p>"
        "<dl><dt>f(x)<a href='#f'>¶</a></dt><dd>Is.</dd></dl>"
        "<figure><img alt='A red bridge'><figcaption>A red bridge</figcaption></figure>"
        "<p>See <img alt='The old town of Alby'> and <img alt='logo'>.</p>"
    )
    assert lines(document) == [
        "漢字 hardly evermore a b", "Home About X Y", "f(x)", "Is.", "A red bridge",
        "See The old town of Alby and .",
    ]  # fmt: skip
    assert document.left_out == {"readings above characters": 1, "pictures": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use <script> here.\n\nMore.\n\n## H\n\nEnd.", ["Use <script> here.", "More.", "H > End."]),
        ("One.\n\n<script>\n\nMore.", ["One.", "<script> More."]),
        ("One.\n\n<iframe src='x'>\n\nMore.", ["One.", "<iframe src='x'>", "More."]),
        ("One.\n\n<!-- two\n\nThree", ["One.", "two Three"]),
        ("One <!-- no --> two.\n\n<!-- no\n\nno -->\n\nEnd.", ["One two.", "End."]),
        ("In the <head>, <nav> or <b>bold</b> 10<sup>6</sup>.", ["In the <head>, <nav> or bold 10^6."]),
        ("A List<String>, 5 <b.\n\n<div align='left'>\n\nX\n\n</div>", ["A List<String>, 5 <b.", "X"]),
        ("<details>\n<summary>S</summary>\n\nIn *it*.\n\n</details>", ["S", "In it."]),
        ("A town[^1].\n\n[^1]: Ibid.\n", ["A town [1].", "[1]: Ibid."]),
        ("`[^a]` and <script>alert(1)</script>.", ["[^a] and ."]),
    ],
)
def test_tags_in_markdown_without_counterpart_are_text(text: str, expected: list[str]) -> None:
    assert lines(read_markdown(text.encode(), "file")) == expected


def test_markdown_says_where_it_nests_too_deep() -> None:
    items = read_markdown("".join(f"{'  ' * depth}- {depth}\n" for depth in range(60)).encode(), "file")
    assert "- 40" in lines(items) and items.notes == ("read in part only: it nests over 100 levels deep",)


@pytest.mark.parametrize(
    ("front", "title", "text"),
    [
        ("---\ntitle: Staff\n---\n# Leave\n", "Staff", ["Leave > Ask."]),
        ("---\ntitle: Guide: the basics\nauthor: Ada\n---\n", "Guide: the basics", ["Ask."]),
        ("---\ntitle: Staff\ndescription: All rules.\n---\n", "Staff", ["All rules.", "Ask."]),
        ('+++\ntitle = "Staff"\n+++\n', "Staff", ["Ask."]),
        ("---\nauthor: Ada\n---\n# Leave\n", "Leave", ["Ask."]),
    ],
)
def test_front_matter_gives_the_title_and_what_it_is_about(front: str, title: str, text: list[str]) -> None:
    document = read_markdown(f"{front}\nAsk.".encode(), "file")
    assert (document.title, lines(document)) == (title, text)
