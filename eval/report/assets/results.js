// The head of the page, and the table of results against a chosen baseline.

// How a column is drawn that the page's data declares: one function for each kind of columns.py.
const COLUMN_KINDS = {
  score: ({name, title}) => [
    {title, key: (run) => mean(run, name), cell: (run) => scoreCell(run, name), kind: "score"},
    ...(name in overview.differences ? [differenceColumn(name, title)] : []),
  ],
  tokens: ({name, title}) => [{title, key: (run) => figure(run, name), cell: tokensCell, kind: "number"}],
  decimal: (column) => plain(column, (value) => value, decimal),
  // The median: a few questions that waited long for others would draw a mean up.
  seconds: (column) => plain(column, (both) => both?.[0] ?? 0, fewDigits),
};

const columns = [
  {title: "Run", key: (run) => runs[run].name, cell: runCell, kind: "name"},
  ...overview.columns.flatMap((column) => COLUMN_KINDS[column.kind](column)),
];

function differenceColumn(name, title) {
  return {
    title: `\u0394 ${title}`,
    key: (run) => gain(run, name),
    cell: (run) => differenceCell(run, name),
    compared: true,
    kind: "difference",
  };
}

function plain({name, title}, value, write) {
  const key = (run) => value(figure(run, name));
  return [{title, key, cell: (run) => write(key(run)), kind: "number"}];
}

function fewDigits(value) {
  return value < 10 ? value.toFixed(2) : decimal(value);
}

function figure(run, name) {
  return runs[run].summary[name];
}

const GLANCE_RUNS = 4; // that are named one by one
const comparable = runs.length > 1 && overview.paired;
const mean = (run, measure) => figure(run, measure)?.mean ?? -1;
const difference = (run, measure) => overview.differences[measure][state.baseline][run];
const gain = (run, measure) => difference(run, measure)?.interval.mean ?? 0;
let order = {column: -1, descending: true};

function runCell(run) {
  const {failed} = runs[run].summary;
  return h(
    "div",
    {class: "run-cell"},
    runName(run),
    runs[run].mark ? h("span", {title: overview.training_note}, runs[run].mark) : null,
    run === state.baseline && comparable ? h("span", {class: "tag"}, "baseline") : null,
    failed ? h("span", {class: "warning"}, `${number(failed)} failed`) : null,
  );
}

function tokensCell(run) {
  const {tokens, computed_tokens: computed} = runs[run].summary;
  return h(
    "div",
    {},
    h("div", {class: "figure"}, number(tokens)),
    h("div", {class: "range"}, `${number(computed)} computed`),
  );
}

function scoreCell(run, measure) {
  const interval = figure(run, measure);
  if (!interval) return h("span", {class: "muted"}, "\u2013");
  const top = scaleTop(runs.map((each) => each.summary[measure]));
  return h(
    "div",
    {class: "score"},
    h("span", {class: "figure"}, percent(interval.mean)),
    h("span", {class: "range"}, range(interval)),
    intervalBar(interval, top, run),
  );
}

function differenceCell(run, measure) {
  const found = difference(run, measure);
  if (!found) return h("span", {class: "muted"}, "\u2013");
  const points = 100 * found.interval.mean;
  const tested = found.adjusted !== null;
  const sure = tested && found.adjusted < 0.05;
  return h(
    "div",
    {class: `difference ${sure ? (points > 0 ? "better" : "worse") : "unsure"}`},
    h("span", {class: "figure"}, sure ? (points > 0 ? "\u25b2\u00a0" : "\u25bc\u00a0") : "", signed(points)),
    found.interval.low === null
      ? null
      : h(
          "span",
          {class: "range"},
          `[${signed(100 * found.interval.low)}, ${signed(100 * found.interval.high)}]`,
        ),
    h("span", {class: "p-value"}, tested ? pValue(found.adjusted) : "not tested"),
    found.failed ? h("span", {class: "warning"}, `${number(found.failed)} failed`) : null,
  );
}

function drawTable() {
  const shown = columns.filter((column) => !column.compared || comparable);
  const rows = runs.map((_, run) => run);
  const sorted = columns[order.column];
  if (sorted) {
    const sign = order.descending ? -1 : 1;
    rows.sort(
      (a, b) =>
        sign *
        (typeof sorted.key(a) === "string"
          ? sorted.key(a).localeCompare(sorted.key(b))
          : sorted.key(a) - sorted.key(b)),
    );
  }
  const heads = shown.map((column) => {
    const place = columns.indexOf(column);
    const active = place === order.column;
    return h(
      "th",
      {
        scope: "col",
        class: `is-${column.kind}`,
        "aria-sort": active ? (order.descending ? "descending" : "ascending") : null,
      },
      h(
        "button",
        {type: "button", class: "sorter", "data-column": place, onclick: () => sortBy(place)},
        column.title,
        h(
          "span",
          {class: "arrow", "aria-hidden": "true"},
          active ? (order.descending ? "\u2193" : "\u2191") : "",
        ),
      ),
    );
  });
  const body = rows.map((run) =>
    h(
      "tr",
      {class: run === state.baseline && comparable ? "is-baseline" : null},
      shown.map((column, place) =>
        h(
          place ? "td" : "th",
          {scope: place ? null : "row", class: `is-${column.kind}`, "data-title": column.title},
          column.cell(run),
        ),
      ),
    ),
  );
  replace(
    at("results-table"),
    h("table", {class: "results"}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)),
  );
}

function sortBy(place) {
  order =
    order.column === place
      ? {column: place, descending: !order.descending}
      : {column: place, descending: place > 0};
  drawTable();
  document.querySelector(`[data-column="${place}"]`).focus();
}

function drawNote() {
  const n = overview.paired ? `Means over ${counted(overview.n, "question")}` : "Means";
  const parts = [
    `${n}, failed ones counting 0, in percent ` +
      "with 95% intervals: Wilson's where each question scores 0 or 1, exact where all score alike, else bootstrap.",
    "Tokens: prompt plus generated, per question; computed: those that the engine really worked through.",
    "Seconds: median per question, waiting for others included.",
  ];
  if (comparable) {
    parts.push(
      `Differences to ${runs[state.baseline].name} are in points, paired by question: bootstrap interval,`,
      `and the p-value of a sign-flip test, adjusted by Holm\u2019s rule over all ${overview.tests[state.baseline]} tests with it.`,
      "\u25b2 \u25bc: below 0.05.",
    );
    const likely = Math.max(...overview.differences.f1[state.baseline].map((each) => each?.detectable ?? 0));
    if (likely) {
      parts.push(
        `With ${counted(overview.n, "question")}, a true difference in F1 of ${percent(likely)} points is found with 80% power, before adjusting.`,
      );
    }
  }
  // Which training a row lacks stands at the top, beside what it would else be compared by.
  const notes = overview.notes
    .filter((note) => note !== overview.training_note)
    .map((note) => h("li", {}, note));
  replace(
    at("results-note"),
    notes.length ? h("ul", {class: "remarks"}, notes) : null,
    h("p", {class: "note"}, parts.join(" ")),
  );
}

// Which run, how sure, at what cost: nothing where no run is compared with another one.
function glance() {
  const {leading} = overview;
  if (!leading || !(leading.measure in measureTitle)) return [];
  const {measure, best, even, worse, tests, detectable} = leading;
  const title = measureTitle[measure];
  const places = (names) => names.map((name) => runs.findIndex((run) => run.name === name));
  const some = (names) => [
    ...places(names.slice(0, GLANCE_RUNS)).map((run) => h("dd", {class: "glance-run"}, runName(run))),
    names.length > GLANCE_RUNS ? h("dd", {}, `and ${names.length - GLANCE_RUNS} more`) : null,
  ];
  const cost = (run) => `${number(figure(run, "tokens"))} tokens, ${fewDigits(figure(run, "seconds")?.[0] ?? 0)} s`;
  const byTokens = (a, b) => figure(a, "tokens") - figure(b, "tokens");
  const tie = best.length > 1;
  const [first] = places(best).sort(byTokens);
  const [cheapest] = places(even).sort(byTokens);
  const saves = cheapest !== undefined && figure(cheapest, "tokens") < figure(first, "tokens");
  return [
    h("div", {}, h("dt", {}, `Highest ${title}${tie ? `, ${best.length} runs tie` : ""}`), some(best), h("dd", {}, h("span", {class: "glance-figure"}, percent(mean(first, measure))), tie ? null : ` ${range(figure(first, measure))}`)),
    h(
      "div",
      {},
      h("dt", {}, "Not significantly worse"),
      even.length ? some(even) : h("dd", {class: "glance-run"}, worse.length ? "none" : "not tested"),
    ),
    h(
      "div",
      {},
      h("dt", {}, "Cost per question"),
      h("dd", {class: "glance-figure"}, cost(first)),
      tie ? h("dd", {}, `${runs[first].name}, the cheapest of those that tie`) : null,
      saves ? h("dd", {}, `The cheapest that is not significantly worse, ${runs[cheapest].name}: ${cost(cheapest)}`) : null,
    ),
    h(
      "div",
      {},
      h("dt", {}, "Minimum detectable difference"),
      h("dd", {class: "glance-figure"}, detectable === null ? "not known" : detectable > 1 ? "none" : `${percent(detectable)} points`),
      h("dd", {}, `${counted(leading.sizes[1], "question")}, 80% power; paired sign-flip tests${tie ? ` against ${best[0]}` : ""}, Holm\u2019s rule over ${counted(tests, "test")}, level 0.05`),
    ),
  ];
}

// What runs have in this condition, each once: of many the first.
function values(name, most = 2) {
  const every = [...new Set(runs.map((run) => run.conditions[name]))].filter(
    (each) => each !== "none" && each !== "unknown",
  );
  const rest = every.length - most;
  return [every.slice(0, most), rest > 0 ? `and ${counted(rest, "other")}` : null];
}

function intro() {
  const name = overview.questions.split("/").pop();
  const names = runs.map((run) => run.name);
  const called = names.join("").length > 48 || names.length > 3 ? counted(runs.length, "run") : inWords(names);
  const [one] = runs;
  const {em, f1, tokens} = one.summary;
  const alone =
    runs.length === 1 && f1
      ? `F1 ${percent(f1.mean)} ${range(f1)} and EM ${percent(em.mean)} ${range(em)} ` +
        `on ${counted(overview.n, "question")}, at ${number(tokens)} tokens per question.`
      : "";
  const many = counted(overview.n, "question");
  const lead = overview.verdict || alone || `${counted(runs.length, "run")} on ${many}.`;
  return {title: `${called} on ${name}`, lead};
}

const inWords = (names) => [names.slice(0, -1).join(", "), names.at(-1)].filter(Boolean).join(" and ");

function drawIntro() {
  const {title, lead} = intro();
  document.title = `${title} \u00b7 corag report`;
  replace(at("title"), title);
  replace(at("lead"), lead);
  replace(at("caveat"), overview.training_note);
  replace(at("glance"), glance());
  at("caveat").hidden = !overview.training_note;
  const joined = ([some, rest]) => (some.length ? [...some, rest].filter(Boolean).join(", ") : "none");
  const adapters = values("adapter")[0].length ? `, adapter ${joined(values("adapter"))}` : "";
  const [commands, others] = values("command", 1);
  const facts = [
    ["Model", joined(values("model")) + adapters],
    ["Retriever", joined(values("retriever"))],
    ["n", counted(overview.n, "question")],
    ["Questions", `${overview.questions} (${overview.dataset})`],
    ["Scorer", overview.scorer],
  ];
  replace(
    at("facts"),
    facts.map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text))),
    commands.length
      ? h("div", {class: "command"}, h("dt", {}, "Command"), h("dd", {}, h("code", {tabindex: 0}, commands[0]), others ? ` ${others}` : ""))
      : null,
  );
  replace(at("foot"), `Made ${overview.made}. Everything in this report is in this one file: it loads nothing and sends nothing.`);
  at("baseline-field").hidden = !comparable;
  replace(
    at("baseline"),
    runs.map((run, place) => option(place, run.name, place === state.baseline)),
  );
  at("baseline").addEventListener("change", (event) => change({baseline: Number(event.target.value)}));
}

const TABLES = {csv: ["CSV", "text/csv"], tex: ["LaTeX", "text/x-tex"], md: ["Markdown", "text/markdown"]};

// The table with the chosen baseline, as 'corag table --to' writes it.
async function drawDownloads() {
  const every = await block("tables");
  const save = (ending) =>
    download(`results.${ending}`, TABLES[ending][1], every[comparable ? state.baseline : 0][ending]);
  replace(
    at("downloads"),
    Object.entries(TABLES).map(([ending, [title]]) =>
      downloadButton(title, `Download the table as ${title}`, () => save(ending)),
    ),
  );
}

function drawResults() {
  drawTable();
  drawNote();
}
