// The list of questions: searched, filtered, sorted, and drawn only as far as it can be seen.

const narrow = matchMedia("(max-width: 900px)"); // a trace covers the list then, as report.css says
const filters = {search: "", outcome: "all", kind: "", hops: "", run: 0, other: -1, order: "file"};
let index = null;
let haystacks = [];
let listed = [];
let active = 0;

const selected = () => (filters.other >= 0 ? [filters.run, filters.other] : [filters.run]);
const emOf = (run, position) => index.runs[run].em[position];
const f1Of = (run, position) => index.runs[run].f1[position];
const disagree = (position) =>
  filters.other >= 0
    ? emOf(filters.run, position) !== emOf(filters.other, position)
    : index.runs.some((run) => run.em[position] !== index.runs[0].em[position]);

const OUTCOMES = {
  all: ["All", () => true],
  right: ["Right", (position) => outcome(filters.run, position) === "right"],
  wrong: ["Wrong", (position) => outcome(filters.run, position) === "wrong"],
  failed: ["Failed", (position) => outcome(filters.run, position) === "failed"],
  disagree: ["Runs disagree", disagree, () => runs.length > 1],
  first: [
    "Only the first is right",
    (position) => emOf(filters.run, position) > emOf(filters.other, position),
    () => filters.other >= 0,
  ],
  second: [
    "Only the second is right",
    (position) => emOf(filters.run, position) < emOf(filters.other, position),
    () => filters.other >= 0,
  ],
};

const ORDERS = {
  file: ["Order of the run", null],
  disagree: [
    "Disagreements first",
    (position) => [
      -Math.abs(emOf(filters.run, position) - emOf(filters.other, position)),
      -Math.abs(f1Of(filters.run, position) - f1Of(filters.other, position)),
    ],
    () => filters.other >= 0,
  ],
  worst: ["Lowest F1 first", (position) => [f1Of(filters.run, position)]],
  tokens: ["Most tokens first", (position) => [-index.runs[filters.run].tokens[position]]],
  slow: ["Slowest first", (position) => [-index.runs[filters.run].seconds[position]]],
};

const available = (choices) => Object.entries(choices).filter(([, choice]) => !choice[2] || choice[2]());

function drawFilters() {
  for (const [name, choices, fallback] of [
    ["outcome", OUTCOMES, "all"],
    ["order", ORDERS, "file"],
  ]) {
    if (!available(choices).some(([key]) => key === filters[name])) filters[name] = fallback;
  }
  const focused = document.activeElement?.id;
  const select = (id, title, options, wide) =>
    h(
      "label",
      {class: wide ? "field wide" : "field"},
      title,
      h("select", {id, onchange: (event) => choose(id, event.target.value)}, options),
    );
  const named = (choices, chosen) =>
    available(choices).map(([key, [text]]) => option(key, text, key === chosen));
  const kinds = runs[0].by_kind.map((group) => group.name);
  const hops = runs[0].by_hops.map((group) => group.name);
  replace(
    at("filters"),
    h(
      "label",
      {class: "field search"},
      h("span", {class: "unseen"}, "Search"),
      h("input", {
        id: "search",
        type: "search",
        value: filters.search,
        autocomplete: "off",
        spellcheck: "false",
        placeholder: "Search questions, gold answers, predictions, ids",
        oninput: (event) => searchSoon(event.target.value),
      }),
    ),
    select(
      "run",
      "Run",
      runs.map((run, place) => option(place, run.name, place === filters.run)),
      true,
    ),
    runs.length > 1
      ? select(
          "other",
          "beside",
          [
            option(-1, "no other run", filters.other < 0),
            ...runs
              .map((run, place) =>
                place === filters.run ? null : option(place, run.name, place === filters.other),
              )
              .filter(Boolean),
          ],
          true,
        )
      : null,
    select("outcome", "Show", named(OUTCOMES, filters.outcome)),
    kinds.length > 1
      ? select("kind", "Type", [
          option("", "any", !filters.kind),
          ...kinds.map((kind) => option(`=${kind}`, kindTitle(kind), filters.kind === `=${kind}`)),
        ])
      : null,
    hops.length > 1
      ? select("hops", "Hops", [
          option("", "any", !filters.hops),
          ...hops.map((count) => option(`=${count}`, hopsTitle(count), filters.hops === `=${count}`)),
        ])
      : null,
    select("order", "Order", named(ORDERS, filters.order)),
  );
  if (focused && focused in filters) at(focused)?.focus();
}

let searching = 0;
function searchSoon(text) {
  filters.search = text;
  clearTimeout(searching);
  searching = setTimeout(applyFilters, 80);
}

function choose(name, value) {
  filters[name] = name === "run" || name === "other" ? Number(value) : value;
  if (name === "run" && filters.other === filters.run) filters.other = -1;
  if (name === "other") filters.order = filters.other >= 0 ? "disagree" : "file";
  drawFilters();
  applyFilters();
  if ((name === "run" || name === "other") && shownQuestion >= 0)
    openQuestion(shownQuestion, {replacing: true, focus: false});
}

function showGroup(filter, name) {
  Object.assign(filters, {search: "", outcome: "all", kind: "", hops: "", [filter]: `=${name}`});
  drawFilters();
  applyFilters();
  at("questions").scrollIntoView();
  at("list").focus({preventScroll: true});
}

function applyFilters() {
  const words = filters.search.toLowerCase().split(/\s+/).filter(Boolean);
  const [, passes] = OUTCOMES[filters.outcome];
  const kind = filters.kind.slice(1);
  const hops = Number(filters.hops.slice(1));
  listed = [];
  for (let position = 0; position < index.ids.length; position += 1) {
    if (!selected().some((run) => asked(run, position))) continue;
    if (filters.kind && index.kinds[position] !== kind) continue;
    if (filters.hops && index.hops[position] !== hops) continue;
    if (passes(position) && words.every((word) => haystacks[position].includes(word))) listed.push(position);
  }
  const key = ORDERS[filters.order][1];
  if (key) {
    const keys = new Map(listed.map((position) => [position, [...key(position), position]]));
    listed.sort((a, b) => {
      const [first, second] = [keys.get(a), keys.get(b)];
      const place = first.findIndex((value, each) => value !== second[each]);
      return place < 0 ? 0 : first[place] - second[place];
    });
  }
  const differing =
    filters.other >= 0 ? `, the two runs disagree on ${number(listed.filter(disagree).length)}` : "";
  replace(
    at("found"),
    listed.length === index.ids.length
      ? counted(listed.length, "question")
      : `${number(listed.length)} of ${counted(index.ids.length, "question")}`,
    differing,
  );
  active = Math.max(0, listed.indexOf(shownQuestion));
  at("list").scrollTop = 0;
  drawList();
}

const rowHeight = () => parseFloat(getComputedStyle(at("list")).getPropertyValue("--row")) || 84;
let spacer = null;

// Only the rows in sight are elements; a spacer as high as all of them gives the scroll bar its size.
function drawList() {
  const list = at("list");
  const height = rowHeight();
  if (!listed.length) {
    replace(list, h("p", {class: "nothing"}, "No question is like this: change the search or the filters."));
    list.removeAttribute("aria-activedescendant");
    return;
  }
  const first = Math.max(0, Math.floor(list.scrollTop / height) - 4);
  const last = Math.min(listed.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 4);
  const rows = [];
  for (let place = first; place < last; place += 1) rows.push(row(place, height));
  spacer ??= h("div", {class: "spacer", role: "presentation"});
  spacer.style.setProperty("height", `${listed.length * height}px`);
  replace(spacer, rows);
  if (spacer.parentNode !== list) replace(list, spacer);
  list.setAttribute("aria-activedescendant", `row-${active}`);
}

function row(place, height) {
  const position = listed[place];
  const shown = position === shownQuestion;
  const pills = selected().map((run) =>
    h(
      "span",
      {class: `pill ${outcome(run, position)}`},
      filters.other >= 0 ? marker(run) : null,
      h("span", {"aria-hidden": "true"}, GLYPHS[outcome(run, position)]),
      h("span", {class: "unseen"}, outcome(run, position)),
      f1Of(run, position) === null
        ? null
        : h("span", {class: "pill-f1"}, `F1 ${percent(f1Of(run, position))}`),
    ),
  );
  const tags = [index.kinds[position], index.hops[position] ? hopsTitle(String(index.hops[position])) : ""]
    .filter(Boolean)
    .join(" \u00b7 ");
  return h(
    "div",
    {
      id: `row-${place}`,
      class: `row${place === active ? " is-active" : ""}${shown ? " is-shown" : ""}`,
      role: "option",
      "aria-selected": String(shown),
      "aria-posinset": place + 1,
      "aria-setsize": listed.length,
      vars: {top: `${place * height}px`},
      onclick: () => {
        active = place;
        openQuestion(position);
      },
    },
    h("span", {class: "row-text"}, index.texts[position]),
    h("span", {class: "row-foot"}, pills, h("span", {class: "row-tags"}, tags)),
  );
}

function moveTo(place) {
  const list = at("list");
  const height = rowHeight();
  active = Math.max(0, Math.min(listed.length - 1, place));
  if (active * height < list.scrollTop) list.scrollTop = active * height;
  else if ((active + 1) * height > list.scrollTop + list.clientHeight)
    list.scrollTop = (active + 1) * height - list.clientHeight;
  drawList();
}

function listKeys(event) {
  const page = Math.max(1, Math.floor(at("list").clientHeight / rowHeight()) - 1);
  const moves = {
    ArrowDown: active + 1,
    ArrowUp: active - 1,
    PageDown: active + page,
    PageUp: active - page,
    Home: 0,
    End: listed.length - 1,
  };
  if (event.altKey || event.ctrlKey || event.metaKey || !listed.length) return;
  if (event.key in moves) moveTo(moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") openQuestion(listed[active]);
  else return;
  event.preventDefault();
}

// Addresses: #question=ID&run=NAME&with=NAME
function linkTo(position) {
  const parts = new URLSearchParams({question: index.ids[position], run: runs[filters.run].name});
  if (filters.other >= 0) parts.set("with", runs[filters.other].name);
  return `#${parts}`;
}

function openQuestion(position, {replacing = false, focus = true} = {}) {
  const link = linkTo(position);
  opening = {link, focus};
  if (location.hash === link) followLink();
  else if (replacing) location.replace(link);
  else location.hash = link;
}
