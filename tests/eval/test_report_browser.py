"""The report in headless Chromium, clicked through at 5,000 questions: paint, search, traces, two runs, keys,
a phone.

With CORAG_SCREENSHOTS=FOLDER it leaves pictures there.
"""

import asyncio
import re
import shutil
import time
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from corag.core.runs.manifest import SERVICE_SOURCE
from eval.report.overview import read_report_runs
from eval.report.page import TextBlocks, html_page, make_report, text_blocks, write_report
from tests.eval.browser import CHROMIUM, DRIVER, Browser, Keys, NoAlertPresentException, Select
from tests.eval.report_runs import EVIL, World, kilt_report, multiply, write
from tests.eval.runs import QUESTIONS, make_run, row, run_of

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
    report = make_report(read_report_runs({run.name: run for run in runs}))
    file = folder / "report.html"
    file.write_text(
        html_page(report, asyncio.run(text_blocks(report, world)), "2026-01-02 03:04 UTC"), encoding="utf-8"
    )
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
        html_page(make_report(read_report_runs(runs)), TextBlocks(), "2026-01-02 03:04 UTC"), encoding="utf-8"
    )
    return file


def test_figures_are_painted_before_two_seconds_and_nothing_is_loaded(browser, big):
    browser.open(big)
    entry = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    assert browser.until(entry) < 2000
    assert browser.text("#title") == "one_step and greedy on test.jsonl"
    assert browser.text("#found") == "5,000 questions"
    assert len(browser.texts(".results tbody tr")) == 2
    assert browser.run("return document.querySelectorAll('#list .row').length") < 40, (
        "only the rows in sight are drawn"
    )
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    browser.picture("overview")


def test_the_page_opens_with_the_baseline_that_was_asked_for(browser, tmp_path):
    world = World(tmp_path, 6)
    runs = {name: write(tmp_path / "runs", name, world, 0.5) for name in ("one_step", "greedy")}
    file = tmp_path / "report.html"
    asyncio.run(write_report(runs, file, baseline="greedy"))
    browser.open(file)
    assert browser.run("return document.querySelector('#baseline').value") == "1"
    assert "baseline" in browser.texts(".results tbody tr")[1]


def test_the_list_is_searched_filtered_and_scrolled_to_its_end(browser, big):
    browser.open(big)
    browser.search("(COPY 20)")
    browser.until("return document.querySelector('#found').innerText.startsWith('250 of 5,000')")
    browser.choose("outcome", "Wrong")
    wrong = int(browser.text("#found").split()[0])
    assert 0 < wrong < 250
    assert all("\u2717" in row for row in browser.texts("#list .row"))
    browser.choose("outcome", "Failed")
    assert all("!" in row for row in browser.texts("#list .row"))
    browser.search("no question has these words")
    browser.until("return document.querySelector('#list').innerText.includes('No question is like this')")
    browser.search("")
    browser.choose("outcome", "All")
    browser.run("document.querySelector('#list').scrollTop = 1e9")
    browser.until("return document.querySelector('#list').innerText.includes('(copy 20)')")
    browser.choose("hops", "3 hops")
    assert all("3 hops" in row for row in browser.texts("#list .row"))


def test_a_trace_shows_the_chain_its_passages_and_their_texts(browser, big):
    browser.open(big)
    browser.choose("run", "greedy")
    browser.choose("outcome", "Right")
    browser.search("copy 3)")
    browser.until("return document.querySelector('#found').innerText.includes(' of 5,000')")
    browser.find("#list .row").click()
    browser.opened("(copy 3)")
    assert browser.run("return document.querySelectorAll('#trace .node-hop').length") >= 2
    assert all(browser.texts("#trace .sub-query"))
    shown = browser.text("#trace")
    for word in ("Gold answer", "EM", "F1", "tokens", "final answer", "Stopped", "length"):
        assert word in shown, word
    assert browser.run("return document.querySelectorAll('#trace .chip.gold').length") >= 1
    fold = browser.find("#trace .node-hop .hits-fold summary")
    fold.click()
    browser.until("return document.querySelectorAll('#trace .node-hop .hits-fold[open] li').length >= 5")
    browser.find("#trace .node-hop .hits-fold[open] li summary").click()
    browser.until(
        "return (document.querySelector('#trace details.passage[open] .passage-text')?.innerText ?? "
        "'').length > 40"
    )
    browser.picture("trace")


def test_two_runs_beside_each_other_show_where_they_disagree_first(browser, big):
    browser.open(big)
    browser.choose("other", "greedy")
    (differing,) = re.findall(r"disagree on ([\d,]+)", browser.text("#found"))
    assert int(differing.replace(",", "")) > 1000
    assert Select(browser.find("#order")).first_selected_option.text == "Disagreements first"
    marks = browser.pills()
    assert all(len(pills) == 2 and ("pill right" in pills) and pills[0] != pills[1] for pills in marks)
    browser.find("#list .row").click()
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    assert browser.texts("#trace .column-head .run-name") == ["one_step", "greedy"]
    left, right = browser.run(
        "return [...document.querySelectorAll('#trace .column')].map((each) => "
        "each.getBoundingClientRect().left)"
    )
    assert right > left + 200
    browser.picture("comparison")
    browser.choose("outcome", "Only the second is right")
    first, second = browser.pills()[0]
    assert "right" in second and "right" not in first


def test_gold_pages_are_marked_by_their_passages(browser, tmp_path):
    file = kilt_report(tmp_path)  # of a run called "found"
    browser.open(file, question="7", run="found")
    browser.opened("Ada was born")
    assert "Gold pages" in browser.text("#trace .gold-card")
    shown = [" ".join(text.split()) for text in browser.texts("#trace .gold-list li")]
    assert [text.partition(" found ")[2] for text in shown] == ["found, page 2", "found, page 3", "missed"], (
        shown
    )
    assert browser.texts("#trace .gold-list .tag.hit") and browser.texts("#trace .gold-list .chip.gold")
    assert len(browser.texts("#trace .column .collected .chip.gold")) == 3
    assert "gold at 3, 4, 5" in browser.text("#trace .hits-fold summary")
    browser.picture("gold-pages")


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


def test_a_mark_that_turns_text_around_ends_with_its_element(browser, small):
    browser.open(small)
    browser.find("#list .row").click()
    loose = "[...document.querySelectorAll('body *')].filter((each) => getComputedStyle(each).unicodeBidi"
    assert browser.run(f"return {loose} === 'normal').length") == 0


def test_everything_can_be_reached_by_keyboard(browser, big):
    browser.open(big)
    browser.run("document.querySelector('#list').focus()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.END, Keys.HOME, Keys.ARROW_DOWN)
    active = browser.run(
        "return "
        "document.getElementById(document.querySelector('#list').getAttribute('aria-activedescendant')).innerText"
    )
    browser.press(Keys.ENTER)
    browser.until("return document.activeElement.id === 'trace-title'")
    assert browser.text("#trace-title") in active
    browser.press(Keys.TAB)
    assert browser.run("return document.querySelector('#trace').contains(document.activeElement)")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") != "none", (
        "the focus can be seen"
    )
    browser.press(Keys.ESCAPE)
    assert browser.focused() == "list"
    browser.press(Keys.PAGE_DOWN, Keys.SPACE)
    browser.until("return document.activeElement.id === 'trace-title'")
    browser.run("document.querySelector('.point').focus()")
    assert "one_step" in browser.text("#tip") and "tokens" in browser.text("#tip")
    assert "one_step" in browser.run("return document.activeElement.getAttribute('aria-label')")
    browser.press(Keys.ESCAPE)
    assert browser.run("return document.querySelector('#tip').hidden")


def test_an_address_opens_its_question_and_the_back_button_works(browser, big):
    browser.open(big, question="world0-test-7 copy 5", run="one_step", **{"with": "greedy"})
    browser.opened("(copy 5)")
    assert len(browser.texts("#trace .column")) == 2
    browser.find("#trace .trace-bar button:last-child").click()
    browser.until(
        "return !document.querySelector('#trace .passage-id').innerText.startsWith('world0-test-7 copy 5')"
    )
    browser.open(big, question="no such id")
    browser.until("return document.querySelector('#trace').innerText.includes('no such id')")


def test_the_oracle_of_a_run_that_keeps_its_candidates_is_drawn_dotted(browser, tmp_path):
    world = World(tmp_path, 20)
    runs = {name: write(tmp_path / "runs", name, world, 0.5) for name in ("greedy", "measured", "vote")}
    file = tmp_path / "report.html"
    file.write_text(
        html_page(make_report(read_report_runs(runs)), TextBlocks(), "2026-01-02 03:04 UTC"), encoding="utf-8"
    )
    browser.open(file)
    for button in ("em", "f1"):
        path = browser.run("return document.querySelector('#plot .oracle path').getAttribute('d')")
        assert path.startswith("M") and "NaN" not in path, button
        assert browser.run("return document.querySelectorAll('#plot .oracle-point').length") >= 1
        browser.find("#measure button:not([aria-pressed=true])").click()
    told = "return document.querySelectorAll('#plot .point')[arguments[0]].getAttribute('aria-label')"
    assert "oracle" not in browser.run(told, 0) and "oracle" in browser.run(told, 1)
    assert "Dotted" in browser.text("#plot figcaption")
    browser.picture("oracle")


def test_figures_against_another_baseline(browser, small):
    browser.open(small)
    before = browser.texts(".results .is-difference")
    browser.choose("baseline", "tree")
    after = browser.texts(".results tbody .is-difference")
    assert before != after and any("p = " in cell or "p < " in cell for cell in after)
    assert "Differences to tree" in browser.text("#results-note") and "12 tests" in browser.text(
        "#results-note"
    )
    browser.find(".sorter[data-column='3']").click()
    shown = [
        float(cell.split()[0])
        for cell in browser.run(
            "return [...document.querySelectorAll('.results td[data-title=F1] .figure')].map((each) => "
            "each.innerText)"
        )
    ]
    assert shown == sorted(shown, reverse=True) and len(shown) == 5
    browser.find("#measure button").click()
    assert browser.run("return document.querySelectorAll('#plot .point').length") == 5
    assert "EM, percent" in browser.run("return document.querySelector('#plot svg').textContent")
    browser.find("#group-tables .link").click()
    browser.until("return document.querySelector('#found').innerText.includes(' of 60')")
    for what in ("results", "scaling", "groups"):
        browser.run(
            "document.getElementById(arguments[0]).scrollIntoView()",
            what,
        )
        browser.picture(what)
    browser.find("#theme").click()
    browser.run("window.scrollTo(0, 0)")
    browser.picture("dark")


def test_the_first_screen_says_what_was_measured_and_how_sure_it_is(browser, small):
    browser.width(1280, 900)
    browser.open(small)
    assert browser.text("#title") == "5 runs on test.jsonl"
    best = browser.text("#lead").partition(" has the highest F1, ")[0]
    glance = [part.split("\n") for part in browser.texts("#glance > div")]
    assert [part[0] for part in glance] == [
        "Highest F1", "Not significantly worse", "Cost per question", "Minimum detectable difference",
    ]  # fmt: skip
    assert glance[0][1] == best and best not in glance[1]
    assert "tokens, " in glance[2][1] and " points" in glance[3][1]
    facts = dict(zip(browser.texts("#facts dt"), browser.texts("#facts dd"), strict=True))
    assert facts["Model"] == "default" and facts["n"] == "60 questions"
    assert facts["Command"] not in ("", "unknown")
    wide = (
        "const table = document.querySelector('#results-table'); return table.scrollWidth - table.clientWidth"
    )
    assert browser.run(wide) <= 0, "no column is cut off"
    assert browser.find("#results-table tbody").location["y"] < 600
    browser.picture("first-screen")


def test_runs_that_tie_are_all_named_with_the_cost_of_the_cheapest(browser, tmp_path):
    world = World(tmp_path, 60)
    greedy, copy = write(tmp_path / "runs", "greedy", world, 0.6), tmp_path / "runs" / "greedy_2"
    shutil.copytree(greedy, copy)
    runs = {"greedy": greedy, "greedy_2": copy, "one_step": write(tmp_path / "runs", "one_step", world, 0.1)}
    file = tmp_path / "report.html"
    file.write_text(
        html_page(make_report(read_report_runs(runs)), TextBlocks(), "2026-01-02"), encoding="utf-8"
    )
    browser.open(file)
    assert browser.text("#lead").startswith("greedy and greedy_2 have the highest F1, ")
    glance = [part.split("\n") for part in browser.texts("#glance > div")]
    assert glance[0][:3] == ["Highest F1, 2 runs tie", "greedy", "greedy_2"]
    assert glance[2][2] in (f"{name}, the cheapest of those that tie" for name in ("greedy", "greedy_2"))
    assert "against greedy," in glance[3][2]


def test_table_and_chart_are_downloaded_from_the_file_itself(browser, small, tmp_path):
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    browser.open(small)
    browser.choose("baseline", "tree")
    for name in ("results.csv", "results.tex", "results.md", "f1-against-tokens.svg"):
        title = {"csv": "CSV", "tex": "LaTeX", "md": "Markdown", "svg": "SVG"}[name.rpartition(".")[2]]
        browser.run("document.querySelector(`.download[title$=${arguments[0]}]`).click()", title)
        end = time.monotonic() + 10
        while not (tmp_path / name).exists():
            assert time.monotonic() < end, name
            time.sleep(0.05)
    assert (
        "baseline" in (tmp_path / "results.csv").read_text()
        and ",tree," in (tmp_path / "results.csv").read_text()
    )
    assert "\\toprule" in (tmp_path / "results.tex").read_text()
    chart = ElementTree.fromstring((tmp_path / "f1-against-tokens.svg").read_text())
    texts = [each.text for each in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert {"one_step", "tree", "F1, percent"} <= set(texts)
    marks = [each for each in chart.iter("{http://www.w3.org/2000/svg}path") if each.get("transform")]
    assert len({each.get("fill") for each in marks}) == 5 and all("rgb" in each.get("fill") for each in marks)


def test_a_method_without_tokens_has_its_point(browser, tmp_path):
    free = [replace(row(each, "Town 1"), usage={}) for each in QUESTIONS]
    runs = {
        "free": make_run(tmp_path / "free", free),
        "other": run_of(tmp_path / "other", range(3), {"seed": 1}),
    }
    file = tmp_path / "report.html"
    asyncio.run(write_report(runs, file))
    browser.open(file)
    assert browser.run("return document.querySelectorAll('#plot .point').length") == 2
    drawn = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    assert browser.run(drawn, "#plot .tick")[5] == "0"
    assert set(browser.run(drawn, "#plot .point-name")) == {"free", "other"}
    browser.picture("no-tokens")


def test_runs_of_a_service_stand_side_by_side(browser, tmp_path):
    served = {"questions": {"source": SERVICE_SOURCE, "dataset": "jsonl", "split": "", "subset": ""}}
    runs = {
        name: make_run(
            tmp_path / name, [row(replace(each, answers=()), "x", ["p1"]) for each in part], served
        )
        for name, part in (("quick", QUESTIONS[:5]), ("best", QUESTIONS[5:8]))
    }
    file = tmp_path / "report.html"
    asyncio.run(write_report(runs, file))
    browser.open(file)
    assert "nothing is tested" in browser.text("#results-note")
    assert not browser.run("return [...document.querySelectorAll('.is-difference')].length")
    assert browser.text("#found") == "5 of 8 questions"
    browser.choose("run", "best")
    assert browser.text("#found") == "3 of 8 questions"
    browser.choose("other", "quick")
    assert browser.text("#found").startswith("8 questions")
    browser.find("#list .row").click()
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    assert "This run was not asked this question." in browser.text("#trace")
    browser.picture("served")


def test_a_report_is_printed_whole_with_its_open_question_behind_it(browser, small):
    browser.open(small, question="world0-test-7", run="greedy", **{"with": "tree"})
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    browser.run("document.documentElement.dataset.theme = 'dark'")
    pages = browser.printed()
    assert len(set(pages)) == len(pages) >= 3, "nothing stands on every page"
    assert "Searches" in pages[0] and "Minimum detectable difference" in pages[0]
    whole = " ".join(" ".join(pages).split())
    for part in ("Where the tokens went", "sub-query", "Trained for".lower(), "hop 1", "Gold answer"):
        assert part in whole, part
    for part in ("Skip to", "Baseline", "LaTeX", "Back to the list", "Search questions"):
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


def test_tab_goes_through_the_page_in_its_order_and_out_again(browser, small):
    browser.width(360, 740, mobile=True)
    browser.open(small)
    seen = []
    while len(seen) < 80:
        browser.press(Keys.TAB)
        place = browser.run(
            "const each = document.activeElement; return each === document.body ? null : "
            "[each.innerText?.slice(0, 30) || each.id, each.matches(':focus-visible') && "
            "(getComputedStyle(each).outlineStyle !== 'none' || each.classList.contains('point') || "
            "each.id === 'list')]"
        )
        if place is None:
            break
        seen.append(place)
    else:
        raise AssertionError("Tab does not leave the page")
    assert [name for name, _ in seen[:2]] == ["Skip to the results", "Skip to the questions"]
    assert all(visible for _, visible in seen), seen
    assert seen[-1][0].startswith("What") or seen[-1][0] == "list" or seen[-1][1]


@pytest.mark.parametrize("name", ["tree", "best_of_4", "ircot"])
def test_every_method_has_its_picture(browser, small, name):
    browser.open(small)
    browser.choose("run", name)
    browser.choose("outcome", "Right")
    browser.find("#list .row:nth-child(2)").click()
    browser.until("return document.querySelectorAll('#trace .column').length === 1")
    shown = browser.text("#trace .tree")
    if name == "ircot":
        assert browser.run("return document.querySelectorAll('#trace .node-step').length") >= 2
        assert "thought" in shown and "search" in shown
    else:
        assert browser.run("return document.querySelectorAll('#trace .tag.chosen').length") == 1
        assert "lower is better" in shown
        closed = browser.run(
            "return document.querySelectorAll('#trace .tree details.node:not([open])').length"
        )
        assert closed >= 2, "what was not chosen is folded away"
        browser.run(
            "for (const each of document.querySelectorAll('#trace .tree details.node')) each.open = true"
        )
        assert browser.run("return document.querySelectorAll('#trace .tree .score-tag').length") >= 4
        assert browser.run(
            "return [...document.querySelectorAll('#trace .sub-query')].every((each) => each.innerText)"
        )
    browser.picture(f"trace-{name}")


def test_a_phone(browser, big):
    browser.width(390, 844, mobile=True)
    browser.open(big)
    wide = "return document.documentElement.scrollWidth"
    assert browser.run(wide) <= 390
    browser.picture("phone-overview")
    browser.run("document.querySelector('#questions').scrollIntoView()")
    browser.choose("other", "greedy")
    browser.picture("phone-questions")
    browser.find("#list .row").click()
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    assert browser.run("return document.querySelector('#trace').getBoundingClientRect().width") == 390
    assert (
        browser.run("return document.querySelector('#trace').scrollWidth") <= 390 and browser.run(wide) <= 390
    )
    assert browser.run("return document.querySelector('.list-pane').inert")
    browser.picture("phone-trace")
    browser.press(Keys.ESCAPE)
    browser.until("return getComputedStyle(document.querySelector('#trace')).display === 'none'")
    assert browser.focused() == "list" and not browser.run(
        "return document.querySelector('.list-pane').inert"
    )
    browser.find("#list .row").click()
    browser.until("return document.querySelectorAll('#trace .column').length === 2")
    browser.driver.back()
    browser.until("return getComputedStyle(document.querySelector('#trace')).display === 'none'")
