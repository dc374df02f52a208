// The head of the page, and the table of results against a chosen baseline.

const columns = [
  {title: "Run", key: (run) => runs[run].name, cell: runCell, kind: "name"},
  {title: "EM", key: (run) => mean(run, "em"), cell: (run) => scoreCell(run, "em"), kind: "score"},
  {
    title: "\u0394 EM",
    key: (run) => gain(run, "em"),
    cell: (run) => differenceCell(run, "em"),
    compared: true,
    kind: "difference",
  },
  {title: "F1", key: (run) => mean(run, "f1"), cell: (run) => scoreCell(run, "f1"), kind: "score"},
  {
    title: "\u0394 F1",
    key: (run) => gain(run, "f1"),
    cell: (run) => differenceCell(run, "f1"),
    compared: true,
    kind: "difference",
  },
  {
    title: `Recall@${overview.recall_at}`,
    key: (run) => mean(run, "recall"),
    cell: (run) => scoreCell(run, "recall"),
    kind: "score",
  },
  ...Object.entries(overview.further).map(([name, title]) => ({
    title,
    key: (run) => runs[run].summary.further[name]?.mean ?? -1,
    cell: (run) => intervalCell(run, (summary) => summary.further[name]),
    kind: "score",
  })),
  {title: "Tokens", key: (run) => runs[run].summary.tokens, cell: tokensCell, kind: "number"},
  plain("Calls", (run) => run.summary.calls, decimal),
  plain("Searches", (run) => run.summary.searches, decimal),
  plain("Steps", (run) => run.summary.steps, decimal),
  plain(
    "Seconds",
    (run) => run.seconds,
    (value) => (value < 10 ? value.toFixed(2) : decimal(value)),
  ),
  plain("Failed", (run) => run.summary.failed, number),
];

function plain(title, value, write) {
  return {title, key: (run) => value(runs[run]), cell: (run) => write(value(runs[run])), kind: "number"};
}

const mean = (run, measure) => runs[run].summary[measure]?.mean ?? -1;
const difference = (run, measure) => overview.differences[measure][state.baseline][run];
const gain = (run, measure) => difference(run, measure)?.interval.mean ?? 0;
let order = {column: -1, descending: true};

function runCell(run) {
  return h(
    "div",
    {class: "run-cell"},
    runName(run),
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

const scoreCell = (run, measure) => intervalCell(run, (summary) => summary[measure]);

function intervalCell(run, of) {
  const interval = of(runs[run].summary);
  if (!interval) return h("span", {class: "muted"}, "\u2013");
  const top = scaleTop(runs.map((each) => of(each.summary)));
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
  const sure = found.adjusted < 0.05;
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
    h("span", {class: "p-value"}, pValue(found.adjusted)),
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
  if (runs.length > 1) {
    const tests = 2 * (runs.length - 1);
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
