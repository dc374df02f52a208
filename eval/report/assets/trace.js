// One question: its gold answers and passages, and what one run, or two beside each other, did about it.

let shownQuestion = -1;
let drawing = 0;

const outcome = (run, position) => {
  const {failed, em} = index.runs[run];
  return !asked(run, position)
    ? "absent"
    : failed[position]
      ? "failed"
      : em[position] === null
        ? "unscored"
        : em[position] === 1
          ? "right"
          : "wrong";
};
// Runs of a service have questions of their own.
const asked = (run, position) => index.runs[run].asked?.[position] !== 0;
const GLYPHS = {absent: "\u2013", right: "\u2713", wrong: "\u2717", failed: "!", unscored: "\u00b7"};
const verdict = (run, position, text) =>
  h(
    "span",
    {class: `verdict ${outcome(run, position)}`},
    h("span", {"aria-hidden": "true"}, GLYPHS[outcome(run, position)]),
    text ?? outcome(run, position),
  );

async function showTrace(position, {focus = true} = {}) {
  const turn = (drawing += 1);
  shownQuestion = position;
  const pane = at("trace");
  cover();
  try {
    const shown = selected();
    const [about, ...traces] = await Promise.all([
      packedItem("gold", index.gold, position),
      ...shown.map((run) => packedItem(`run-${run}`, index.runs[run].starts, position)),
    ]);
    await nameGold(about);
    if (turn !== drawing) return;
    replace(
      pane,
      traceHead(position),
      goldCard(about, traces, shown),
      h(
        "div",
        {class: `columns columns-${shown.length}`},
        shown.map((run, place) => column(run, position, traces[place])),
      ),
    );
  } catch (error) {
    console.error(error);
    replace(
      pane,
      traceHead(position),
      h("p", {class: "notice"}, `This trace cannot be shown: ${error.message}`),
    );
  }
  pane.scrollTop = 0;
  if (focus) at("trace-title").focus({preventScroll: true});
}

function traceHead(position) {
  const tags = [
    index.kinds[position],
    index.hops[position] ? hopsTitle(String(index.hops[position])) : "",
  ].filter(Boolean);
  const place = listed.indexOf(position);
  const step = (by, text) =>
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        disabled: place < 0 || !(place + by in listed),
        onclick: () => openQuestion(listed[place + by], {replacing: true}),
      },
      text,
    );
  return h(
    "header",
    {class: "trace-head"},
    h(
      "div",
      {class: "trace-bar"},
      h("button", {type: "button", class: "quiet back", onclick: closeTrace}, "\u2190 Back to the list"),
      h("span", {class: "grow"}),
      step(-1, "\u2191 Previous"),
      step(1, "\u2193 Next"),
    ),
    h("h3", {id: "trace-title", tabindex: -1}, index.texts[position]),
    h(
      "p",
      {class: "trace-meta"},
      h(
        "a",
        {class: "passage-id", href: linkTo(position), title: "Link to this question"},
        index.ids[position],
      ),
      tags.map((tag) => h("span", {class: "tag"}, tag)),
    ),
    h(
      "p",
      {class: "gold-answers"},
      h("span", {class: "label"}, index.answers[position].length ? "Gold answer" : "No gold answer"),
      index.answers[position].map((answer, rank) =>
        h("span", {class: rank ? "alias" : "gold-answer"}, answer),
      ),
    ),
  );
}

// Gold passages, or pages, and decomposition, and which run collected what. A run counts those that it has
// places of: another index may call them otherwise.
function goldCard({item, passages}, traces, shown) {
  const places = traces.map((each) => new Map(each.item.places));
  const supporting = (item.supporting ?? []).filter((place) => places.some((each) => each.has(place)));
  const decomposition = item.decomposition ?? [];
  if (!supporting.length && !decomposition.length) return null;
  const view = passageView(passages, new Set(supporting));
  const rows = supporting.map((place) =>
    h(
      "li",
      {},
      item.by_page || item.by_name
        ? h("div", {class: "passage"}, chip(place, view))
        : passageItem(place, null, view, false),
      h(
        "span",
        {class: "found"},
        shown.map((run, which) =>
          places[which].has(place) ? foundTag(run, places[which].get(place), item.by_page) : null,
        ),
      ),
    ),
  );
  const hops = decomposition.map(([question, answer]) =>
    h("li", {}, h("span", {}, question), " ", h("span", {class: "arrow"}, "\u2192"), " ", h("b", {}, answer)),
  );
  return h(
    "div",
    {class: "gold-card"},
    rows.length
      ? h(
          "div",
          {},
          h("h4", {}, item.by_page ? "Gold pages" : "Gold passages"),
          h("ul", {class: "gold-list"}, rows),
        )
      : null,
    hops.length ? h("div", {}, h("h4", {}, "Gold decomposition"), h("ol", {class: "gold-hops"}, hops)) : null,
  );
}

function foundTag(run, rank, byPage) {
  const within = rank && rank <= overview.recall_at;
  const text = rank ? `found, ${byPage ? "page" : "place"} ${rank}` : "missed";
  return h(
    "span",
    {class: within ? "tag hit" : "tag miss"},
    marker(run),
    h("span", {class: "unseen"}, runs[run].name),
    text,
  );
}

function column(run, position, {item, passages}) {
  if (!asked(run, position)) {
    return h(
      "section",
      {class: "column", "aria-label": runs[run].name},
      h("h4", {class: "column-head"}, runName(run)),
      h("p", {class: "note"}, "This run was not asked this question."),
    );
  }
  const view = passageView(passages, new Set(item.gold), Boolean(item.places));
  const {em, f1, recall} = index.runs[run];
  const figures =
    em[position] === null
      ? []
      : [
          ["EM", percent(em[position])],
          ["F1", percent(f1[position])],
        ];
  if (recall[position] !== null) figures.push([`Recall@${overview.recall_at}`, percent(recall[position])]);
  if (item.hops !== undefined) figures.push(["Steps", number(item.hops)]);
  figures.push(["Seconds", item.seconds < 10 ? item.seconds.toFixed(2) : item.seconds.toFixed(1)]);
  if (item.computed) figures.push(["Computed", item.computed]);
  if (item.stopped) figures.push(["Stopped", item.stopped.replaceAll("_", " ")]);
  const steps = (item.steps ?? []).length;
  return h(
    "section",
    {class: "column", "aria-label": runs[run].name},
    h("h4", {class: "column-head"}, runName(run), verdict(run, position)),
    item.error
      ? errorNote(item.error)
      : h("p", {class: `prediction ${outcome(run, position)}`}, item.answer || "(an empty answer)"),
    h(
      "dl",
      {class: "figures"},
      figures.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))),
    ),
    usageFold(item.usage ?? {}),
    steps ? drawTree(treeOf(item), view) : h("p", {class: "note"}, "No steps were kept for this question."),
    passageFold("Passages that the final answer was shown", item.context, view),
    passageFold("Passages read on the way to the answer, in this order", item.read, view),
    passageFold("All passages collected", item.collected, view),
  );
}

function errorNote(error) {
  const [first, ...rest] = error.trim().split("\n");
  return h(
    "div",
    {class: "error-note"},
    h("p", {}, first),
    rest.length ? h("details", {}, h("summary", {}, "traceback"), h("pre", {}, rest.join("\n"))) : null,
  );
}

function usageFold(usage) {
  const roles = Object.entries(usage);
  if (!roles.length) return null;
  const sum = roles.reduce(
    (total, [, values]) => total.map((value, place) => value + values[place]),
    [0, 0, 0, 0],
  );
  const tokens = sum[1] + sum[2];
  const bar = h(
    "span",
    {class: "stack", "aria-hidden": "true"},
    roles.map(([, values], place) =>
      h("span", {
        class: `part part-${place % 6}`,
        vars: {"--share": `${((100 * (values[1] + values[2])) / Math.max(1, tokens)).toFixed(2)}%`},
      }),
    ),
  );
  const rows = roles.map(([role, [calls, prompt, generated, computed]], place) =>
    h(
      "tr",
      {},
      h(
        "th",
        {scope: "row"},
        h("span", {class: `key part-${place % 6}`, "aria-hidden": "true"}),
        ROLE_TITLES[role] ?? role,
      ),
      [calls, prompt, generated, computed].map((value) => h("td", {class: "is-number"}, number(value))),
    ),
  );
  return h(
    "details",
    {class: "usage"},
    h(
      "summary",
      {},
      h("span", {}, `${number(tokens)} tokens in ${counted(sum[0], "call")}, ${number(sum[3])} computed`),
      bar,
    ),
    h(
      "div",
      {class: "scroller"},
      h(
        "table",
        {class: "settings"},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Role", "Calls", "Prompt", "Generated", "Computed"].map((head, place) =>
              h("th", {scope: "col", class: place ? "is-number" : null}, head),
            ),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
  );
}

function passageFold(title, places, view) {
  if (!places?.length) return null;
  return h(
    "details",
    {class: "collected"},
    h("summary", {}, `${title} (${places.length})`),
    h(
      "ol",
      {class: "hits"},
      places.map((place) => h("li", {}, passageItem(place, null, view))),
    ),
  );
}
