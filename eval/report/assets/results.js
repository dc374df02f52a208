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
  count: (column) => plain(column, (value) => value, number),
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

const mean = (run, measure) => figure(run, measure)?.mean ?? -1;
const difference = (run, measure) => overview.differences[measure][state.baseline][run];
const gain = (run, measure) => difference(run, measure)?.interval.mean ?? 0;
let order = {column: -1, descending: true};

function runCell(run) {
  return h(
    "div",
    {class: "run-cell"},
    runName(run),
    runs[run].mark ? h("span", {title: overview.training_note}, ` ${runs[run].mark}`) : null,
    run === state.baseline && runs.length > 1 ? h("span", {class: "tag"}, "baseline") : null,
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
    found.failed ? h("span", {class: "warning"}, `${counted(found.failed, "question")} failed`) : null,
  );
}

function drawTable() {
  const shown = columns.filter((column) => !column.compared || runs.length > 1);
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
      {class: run === state.baseline && runs.length > 1 ? "is-baseline" : null},
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
  const parts = [
    `Means over ${counted(overview.n, "question")}, failed ones counting 0, in percent ` +
      "with 95% intervals: Wilson's where each question scores 0 or 1, exact where all score alike, else bootstrap.",
    "Tokens: prompt plus generated, per question; computed: those that the engine really worked through.",
    "Seconds: median per question, waiting for others included.",
  ];
  if (overview.training_note) parts.unshift(overview.training_note);
  if (runs.length > 1) {
    const differences = ["em", "f1"].flatMap((measure) => overview.differences[measure][state.baseline]);
    const tests = differences.filter((each) => each && each.adjusted !== null).length;
    parts.push(
      `Differences to ${runs[state.baseline].name} are in points, paired by question: bootstrap interval,`,
      `and the p-value of a sign-flip test, adjusted by Holm\u2019s rule for the ${tests} tests here.`,
      "\u25b2 \u25bc: below 0.05.",
    );
    const likely = Math.max(...overview.differences.f1[state.baseline].map((each) => each?.detectable ?? 0));
    if (likely) {
      const points = `${percent(likely)} points or more`;
      parts.push(
        `So many questions are likely to show a difference in F1 of ${points} (80% power, before adjusting).`,
      );
    }
  }
  const {unscored} = runs[0].summary;
  if (unscored)
    parts.push(`Without a gold answer, and so in neither EM nor F1: ${counted(unscored, "question")}.`);
  if (overview.left_out)
    parts.push(`Left out, since some run lacks them: ${counted(overview.left_out, "question")}.`);
  replace(at("results-note"), parts.join(" "));
}

function drawIntro() {
  const name = overview.questions.split("/").pop();
  document.title = `${name} \u00b7 corag report`;
  replace(at("title"), name);
  const best = runs.map((run) => run.summary).sort((a, b) => (b.f1?.mean ?? 0) - (a.f1?.mean ?? 0))[0];
  replace(
    at("lead"),
    `${counted(runs.length, "run")} on ${counted(overview.n, "question")}. `,
    runs.length > 1 && best.f1
      ? `Highest F1: ${best.method}, ${percent(best.f1.mean)} at ${number(best.tokens)} tokens per question.`
      : "",
  );
  const facts = [
    ["Scorer", overview.scorer],
    ["Questions", `${overview.questions} (${overview.dataset})`],
    ["n", number(overview.n)],
    ["Recall", `first ${overview.recall_at} collected passages`],
    ["Made", overview.made],
  ];
  replace(
    at("facts"),
    facts.map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text))),
  );
  replace(at("foot"), "Everything in this report is in this one file: it loads nothing and sends nothing.");
  at("baseline-field").hidden = runs.length < 2;
  replace(
    at("baseline"),
    runs.map((run, place) => option(place, run.name, place === state.baseline)),
  );
  at("baseline").addEventListener("change", (event) => change({baseline: Number(event.target.value)}));
}

function drawResults() {
  drawTable();
  drawNote();
}
