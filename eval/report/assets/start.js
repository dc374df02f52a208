// Putting the page up: figures at once, questions when the rest of the file has been read.

let opening = null;

async function startExplorer() {
  const list = at("list");
  try {
    index = await block("index");
  } catch (error) {
    replace(at("found"), `The questions cannot be shown: ${error.message}`);
    return;
  }
  drawDownloads();
  haystacks = index.texts.map((text, position) =>
    [
      text,
      index.ids[position],
      ...index.answers[position],
      ...index.runs.map((run) => run.predictions[position]),
    ]
      .join("\n")
      .toLowerCase(),
  );
  list.addEventListener("scroll", () => requestAnimationFrame(drawList), {passive: true});
  list.addEventListener("keydown", listKeys);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  new ResizeObserver(drawList).observe(list);
  window.addEventListener("hashchange", followLink);
  drawFilters();
  applyFilters();
  emptyTrace();
  followLink();
}

function emptyTrace() {
  replace(
    at("trace"),
    h(
      "div",
      {class: "empty"},
      h("h3", {id: "trace-title", tabindex: -1}, "No question is open"),
      h(
        "p",
        {},
        "Choose one in the list: with the arrow keys and Enter, or by clicking. " +
          "Escape goes back to the list.",
      ),
      overview.texts_per_block
        ? null
        : h(
            "p",
            {class: "note"},
            "Passages are shown by title. Make the report with --retriever.index to have their texts in it.",
          ),
    ),
  );
}

// Show the question that the address names, with the runs that it names.
function followLink() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const asked = opening?.link === location.hash ? opening : {focus: true};
  opening = null;
  if (!parts.has("question")) {
    if (shownQuestion >= 0 && narrow.matches) hideTrace();
    return;
  }
  const position = index.ids.indexOf(parts.get("question"));
  const run = runs.findIndex((each) => each.name === parts.get("run"));
  const other = runs.findIndex((each) => each.name === parts.get("with"));
  if (run >= 0 && (run !== filters.run || other !== filters.other)) {
    Object.assign(filters, {run, other: other === run ? -1 : other});
    if (filters.other >= 0) filters.order = "disagree";
    drawFilters();
    applyFilters();
  }
  if (position < 0) {
    replace(
      at("trace"),
      h("p", {class: "notice"}, `No question of this report has the id ${parts.get("question")}.`),
    );
    return;
  }
  showTrace(position, asked);
  if (listed.includes(position)) moveTo(listed.indexOf(position));
  const {top} = at("explorer").getBoundingClientRect();
  if (!narrow.matches && (top > 0.35 * window.innerHeight || top < 0)) at("explorer").scrollIntoView();
}

// Back to the list; where the trace covers it, its address is left as well, so that the browser's back
// button does the same.
function closeTrace() {
  if (narrow.matches) location.hash = "questions";
  else at("list").focus({preventScroll: true});
}

function hideTrace() {
  shownQuestion = -1;
  cover();
  emptyTrace();
  drawList();
  at("list").focus({preventScroll: true});
}

// What an open trace covers cannot be reached by Tab.
function cover() {
  const covered = narrow.matches && shownQuestion >= 0;
  document.body.classList.toggle("reading", shownQuestion >= 0);
  for (const element of document.querySelectorAll("[data-behind]")) element.inert = covered;
}

function turnTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}

// On paper nothing can be opened or scrolled: what is folded away prints open, and the chart has its width. Texts
// and prompts print where a reader has opened them, and so does the long list of every setting.
const PAPER_WIDTH = 680; // CSS pixels between the margins of A4 and Letter
const FOLDS = ".fold:not(:last-child), .node, .usage";
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll(`details:is(${FOLDS}):not([open])`)];
  for (const each of unfolded) each.open = true;
  if (plotted) drawPlot(PAPER_WIDTH);
});
addEventListener("afterprint", () => {
  for (const each of unfolded) each.open = false;
  if (plotted) drawPlot();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  hideTip();
  if (at("trace").contains(document.activeElement) && shownQuestion >= 0) closeTrace();
});
at("theme").addEventListener("click", turnTheme);
drawIntro();
drawConditions();
narrow.addEventListener("change", cover);
whenChanged(drawResults);
whenChanged(drawScaling);
whenChanged(drawGroups);
change({});
watchPlot();
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startExplorer);
else startExplorer();
