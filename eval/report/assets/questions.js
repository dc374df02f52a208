// The list of questions: searched, filtered, ordered. A question is opened by its address,
// #question=ID&run=NAME&with=NAME, so every row is a link.

const PAGE = 100; // rows that are drawn at first, and again at every "Show more"
const choices = {search: "", run: 0, with: -1, show: "all", order: "file"};
let haystacks = [];
let listed = [];
let drawn = 0;
let opened = -1; // the question that is shown

const isCompared = () => choices.with >= 0;
const chosenRuns = () => (isCompared() ? [choices.run, choices.with] : [choices.run]);
const first = (position) => rowOf(choices.run, position);
// How much more the first run has by EM than the second.
const gain = (position) => (first(position)?.em ?? 0) - (rowOf(choices.with, position)?.em ?? 0);
const isOutcome = (name) => (position) => outcome(choices.run, position) === name;

const SHOW = {
  all: ["all questions", () => true],
  right: ["right", isOutcome("right")],
  wrong: ["wrong", isOutcome("wrong")],
  failed: ["failed", isOutcome("failed")],
  differ: ["where the two differ", (position) => gain(position) !== 0, isCompared],
  first: ["only the first is right", (position) => gain(position) > 0, isCompared],
  second: ["only the second is right", (position) => gain(position) < 0, isCompared],
};
const ORDERS = {
  file: ["as in the run", null],
  worst: ["lowest F1 first", (position) => first(position)?.f1],
  tokens: ["most tokens first", (position) => -first(position)?.tokens],
};

function drawFilters() {
  const select = (name, title, options) => {
    const onchange = (event) => choose(name, event.target.value);
    return h("label", {class: "field"}, title, h("select", {id: name, onchange}, options));
  };
  const possible = (kinds, chosen) =>
    Object.entries(kinds)
      .filter(([, [, , applies]]) => !applies || applies())
      .map(([key, [text]]) => option(key, text, key === chosen));
  const others = runs.map((name, run) => (run === choices.run ? null : option(run, name, run === choices.with)));
  const search = {
    id: "search",
    type: "search",
    value: choices.search,
    placeholder: "Search questions, types, answers, predictions, ids",
    "aria-label": "Search",
    oninput: (event) => choose("search", event.target.value),
  };
  replace(
    at("filters"),
    h("input", search),
    select("run", "Run", runs.map((name, run) => option(run, name, run === choices.run))),
    runs.length > 1 ? select("with", "beside", [option(-1, "no other run", !isCompared()), others]) : null,
    select("show", "Show", possible(SHOW, choices.show)),
    select("order", "Order", possible(ORDERS, choices.order)),
  );
}

function choose(name, value) {
  choices[name] = name === "run" || name === "with" ? Number(value) : value;
  if (name !== "search") {
    if (choices.with === choices.run) choices.with = -1;
    if (name === "with" || (SHOW[choices.show][2] && !isCompared())) choices.show = isCompared() ? "differ" : "all";
    drawFilters();
    at(name).focus();
  }
  list();
  if ((name === "run" || name === "with") && opened >= 0) location.replace(linkTo(opened));
}

function list() {
  const words = choices.search.toLowerCase().split(/\s+/).filter(Boolean);
  const passes = SHOW[choices.show][1];
  const key = ORDERS[choices.order][1];
  listed = [...index.ids.keys()].filter(
    (position) =>
      chosenRuns().some((run) => rowOf(run, position)) &&
      passes(position) &&
      words.every((word) => haystacks[position].includes(word)),
  );
  if (key) listed.sort((a, b) => key(a) - key(b));
  const differing = listed.filter((position) => isCompared() && gain(position) !== 0).length;
  const rest = isCompared() ? `; the two runs differ on ${number(differing)} of these` : "";
  at("found").textContent = `${number(listed.length)} of ${counted(index.ids.length, "question")}${rest}`;
  at("list").replaceChildren();
  drawn = 0;
  drawMore();
}

function drawMore() {
  const next = listed.slice(drawn, drawn + PAGE);
  at("list").append(...next.map(drawRow));
  drawn += next.length;
  at("more").hidden = drawn >= listed.length;
}

function drawRow(position) {
  const pills = chosenRuns().map((run) => {
    const score = rowOf(run, position)?.f1 ?? null;
    return [isCompared() ? marker(run) : null, pill(run, position, score === null ? null : `F1 ${percent(score)}`)];
  });
  const tags = h("span", {class: "row-tags"}, tagsOf(position).join(" \u00b7 "));
  const link = {class: "row", href: linkTo(position), "data-position": position, "aria-current": position === opened};
  return h("li", {}, h("a", link, index.texts[position], h("span", {class: "row-foot"}, pills, tags)));
}

function linkTo(position) {
  const parts = new URLSearchParams({question: index.ids[position], run: runs[choices.run]});
  if (isCompared()) parts.set("with", runs[choices.with]);
  return `#${parts}`;
}

// Show the question that the address names, with the runs that it names.
async function follow() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.has("question")) return;
  const run = runs.indexOf(parts.get("run"));
  const other = runs.indexOf(parts.get("with"));
  if (run >= 0 && (run !== choices.run || other !== choices.with)) {
    Object.assign(choices, {run, with: other === run ? -1 : other});
    drawFilters();
    list();
  }
  opened = index.ids.indexOf(parts.get("question"));
  if (opened < 0) {
    replace(at("trace"), h("p", {}, `No question of this report has the id ${parts.get("question")}.`));
    return;
  }
  for (const each of at("list").querySelectorAll("a")) each.ariaCurrent = Number(each.dataset.position) === opened;
  const isChoosing = at("filters").contains(document.activeElement);
  await showTrace(opened, chosenRuns());
  if (!isChoosing) at("trace-title").focus();
}

async function start() {
  try {
    [index, passages] = await Promise.all([block("index"), block("passages")]);
  } catch (error) {
    at("found").textContent = `The questions cannot be shown: ${error.message}`;
    return;
  }
  haystacks = index.texts.map((text, position) => {
    const predictions = runs.map((_, run) => rowOf(run, position)?.prediction ?? "");
    const parts = [text, index.ids[position], ...tagsOf(position), ...index.answers[position], ...predictions];
    return parts.join("\n").toLowerCase();
  });
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("more").addEventListener("click", drawMore);
  addEventListener("hashchange", follow);
  at("trace").addEventListener("keydown", (event) => {
    if (event.key === "Escape") at("list").querySelector("[aria-current=true]")?.focus();
  });
  const hint = report.texts_per_block ? "" : " Passages are shown by title: --retriever.index adds their texts.";
  replace(at("trace"), h("p", {class: "note"}, `Choose a question; Escape goes back to the list.${hint}`));
  drawFilters();
  list();
  follow();
}

// The blocks stand below this script.
document.addEventListener("DOMContentLoaded", start);
