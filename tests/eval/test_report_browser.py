"""The report in headless Chromium, clicked through at 5,000 questions: search, chains, two runs, keys.

With CORAG_SCREENSHOTS=FOLDER it leaves pictures there.
"""

import asyncio
import re

import pytest

from eval.report.page import add_texts, html_page, make_report
from eval.tables.results import PLAIN_VIEW, score_view
from tests.eval.browser import CHROMIUM, DRIVER, Browser, Keys, NoAlertPresentException, Select
from tests.eval.report_runs import EVIL, World, multiply, write

pytestmark = pytest.mark.slow

WORLD_QUESTIONS, COPIES = 250, 20


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not CHROMIUM.exists() or not DRIVER.exists():
        pytest.skip(
            f"no browser: '{CHROMIUM}' and '{DRIVER}' are needed (Debian's packages chromium and "
            "chromium-driver)"
        )
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


@pytest.fixture(autouse=True)
def wide_and_without_errors(browser):
    browser.width(1440, 1000)
    browser.errors()
    yield
    assert browser.errors() == []


@pytest.fixture(scope="module")
def big(browser, tmp_path_factory):
    """5,000 questions, two runs, with the passages' texts."""
    folder = tmp_path_factory.mktemp("big")
    world = World(folder, WORLD_QUESTIONS)
    runs = [write(folder / "runs", "one_step", world, 0.35), write(folder / "runs", "greedy", world, 0.55)]
    for run in runs:
        multiply(run, COPIES)
    report = make_report(score_view({run.name: run for run in runs}, PLAIN_VIEW))
    file = folder / "report.html"
    report = asyncio.run(add_texts(report, world))
    file.write_text(html_page(report, "2026-01-02 03:04 UTC"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def small(browser, tmp_path_factory):
    """Five methods on a few questions, passages by title."""
    folder = tmp_path_factory.mktemp("small")
    world = World(folder, 60)
    skills = {"one_step": 0.3, "ircot": 0.35, "greedy": 0.45, "best_of_4": 0.55, "tree": 0.65}
    runs = {name: write(folder / "runs", name, world, skill) for name, skill in skills.items()}
    file = folder / "report.html"
    file.write_text(
        html_page(make_report(score_view(runs, PLAIN_VIEW)), "2026-01-02 03:04 UTC"),
        encoding="utf-8",
    )
    return file


def test_figures_are_painted_before_two_seconds_and_nothing_is_loaded(browser, big):
    browser.open(big)
    entry = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    assert browser.until(entry) < 2000
    assert browser.text("#title") == "one_step, greedy on test.jsonl"
    assert browser.text("#found") == "5,000 of 5,000 questions"
    assert len(browser.texts("#results > div tbody tr")) == 2
    assert browser.run("return document.querySelectorAll('#list .row').length") == 100
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    browser.picture("overview")


def test_the_list_is_searched_filtered_and_goes_on_to_its_end(browser, big):
    browser.open(big)
    browser.find("#more").click()
    assert browser.run("return document.querySelectorAll('#list .row').length") == 200
    browser.search("(COPY 20)")
    browser.until("return document.querySelector('#found').innerText.startsWith('250 of 5,000')")
    browser.choose("show", "wrong")
    wrong = int(browser.text("#found").split()[0])
    assert 0 < wrong < 250
    assert all("\u2717" in row for row in browser.texts("#list .row"))
    browser.choose("show", "failed")
    assert all("!" in row for row in browser.texts("#list .row"))
    browser.search("no question has these words")
    browser.until("return document.querySelector('#found').innerText.startsWith('0 of 5,000')")
    browser.search("")
    browser.choose("show", "all questions")
    browser.search("3-hop")
    assert all("3-hop" in row for row in browser.texts("#list .row"))


def test_a_trace_shows_the_chain_its_passages_and_their_texts(browser, big):
    browser.open(big)
    browser.choose("run", "greedy")
    browser.choose("show", "right")
    browser.search("copy 3)")
    browser.until("return !document.querySelector('#found').innerText.startsWith('5,000')")
    browser.find("#list .row").click()
    browser.opened("(copy 3)")
    assert browser.focused() == "trace-title"
    assert browser.run("return document.querySelectorAll('#trace .node').length") >= 3
    shown = browser.text("#trace")
    for word in ("Gold answer", "EM", "F1", "tokens", "sub-query", "sub-answer", "final answer", "stopped"):
        assert word in shown, word
    assert browser.run("return document.querySelectorAll('#trace .step .chip.gold').length") >= 1
    browser.find("#trace .step .hits summary").click()
    browser.until("return document.querySelectorAll('#trace .step .hits[open] li').length >= 5")
    browser.find("#trace .step .hits[open] li summary").click()
    browser.until(
        "return (document.querySelector('#trace .passage[open] .passage-text')?.innerText ?? '').length > 40"
    )
    browser.picture("trace")


def test_two_runs_beside_each_other_show_where_they_differ(browser, big):
    browser.open(big)
    browser.choose("with", "greedy")
    (differing,) = re.findall(r"differ on ([\d,]+)", browser.text("#found"))
    assert int(differing.replace(",", "")) > 1000
    assert Select(browser.find("#show")).first_selected_option.text == "where the two differ"
    marks = browser.pills()
    assert all(len(pills) == 2 and ("pill right" in pills) and pills[0] != pills[1] for pills in marks)
    browser.find("#list .row").click()
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    assert browser.texts("#trace .column .run-name") == ["one_step", "greedy"]
    left, right = browser.run(
        "return [...document.querySelectorAll('#trace .column')].map((each) => "
        "each.getBoundingClientRect().left)"
    )
    assert right > left + 200
    browser.picture("comparison")
    browser.choose("show", "only the second is right")
    first, second = browser.pills()[0]
    assert "right" in second and "right" not in first


def test_markup_in_questions_and_passages_stays_text(browser, big):
    browser.open(big)
    browser.choose("run", "greedy")
    browser.search("alert(1)")
    browser.until("return document.querySelector('#found').innerText.startsWith('20 of')")
    assert EVIL in browser.text("#list .row")
    browser.find("#list .row").click()
    browser.opened(EVIL)
    assert EVIL in browser.text("#trace .gold-card"), "the title of a gold passage"
    browser.find("#trace .gold-card summary").click()
    browser.until(
        "return document.querySelector('#trace .gold-card "
        ".passage-text').innerText.includes('</script><script>alert(1)')"
    )
    with pytest.raises(NoAlertPresentException):
        _ = browser.driver.switch_to.alert
    assert browser.run("return document.querySelectorAll('#trace script, #list script').length") == 0


def test_everything_can_be_reached_by_keyboard(browser, big):
    browser.open(big)
    browser.run("document.querySelectorAll('#list .row')[2].focus()")
    text = browser.run("return document.activeElement.firstChild.textContent")
    browser.press(Keys.ENTER)
    browser.until("return document.activeElement.id === 'trace-title'")
    assert browser.text("#trace-title") == text
    browser.press(Keys.TAB)
    assert browser.run("return document.querySelector('#trace').contains(document.activeElement)")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") != "none", (
        "the focus can be seen"
    )
    browser.press(Keys.ESCAPE)
    assert browser.run("return document.activeElement.firstChild.textContent") == text


def test_an_address_opens_its_question_and_the_back_button_works(browser, big):
    browser.open(big, question="world0-test-7 copy 5", run="one_step", **{"with": "greedy"})
    browser.opened("(copy 5)")
    assert len(browser.texts("#trace .column")) == 2
    browser.find("#list .row").click()
    browser.until("return !document.querySelector('#trace-title').innerText.includes('(copy 5)')")
    browser.driver.back()
    browser.opened("(copy 5)")
    browser.open(big, question="no such id")
    browser.until("return document.querySelector('#trace').innerText.includes('no such id')")


def test_a_report_is_printed_whole_with_its_open_question_behind_it(browser, small):
    browser.open(small, question="world0-test-7", run="greedy", **{"with": "tree"})
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    browser.run("document.documentElement.dataset.theme = 'dark'")
    pages = browser.printed()
    assert len(set(pages)) == len(pages) >= 3, "nothing stands on every page"
    assert "searches" in pages[0]
    whole = " ".join(" ".join(pages).split())
    for part in ("Tests against tree", "sub-query", '"strategy": "tree"', "hop 1", "Gold answer"):
        assert part in whole, part
    for part in ("Skip to", "Search questions"):
        assert part not in whole, part
    browser.open(small)
    assert "Gold answer" not in " ".join(browser.printed())


@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_no_serious_violation(browser, small, width):
    browser.width(width, 800, mobile=width < 600)
    browser.open(small)
    browser.run("document.querySelectorAll('.fold').forEach((each) => { each.open = true; })")
    assert browser.serious() == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.open(small, question="world0-test-7", run="greedy")
    browser.until("return document.querySelectorAll('#trace .column').length === 1")
    assert browser.serious() == []
