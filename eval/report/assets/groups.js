// How runs do on groups of questions: by number of hops, and by the dataset's own types.

const hopsTitle = (name) => (name === "" ? "not stated" : `${name} ${name === "1" ? "hop" : "hops"}`);
const kindTitle = (name) => name || "not stated";
const LISTED_GROUPS = 24;

function drawGroups() {
  const tables = [
    groupTable("By number of hops", "by_hops", "hops", hopsTitle),
    groupTable("By type of question", "by_kind", "kind", kindTitle),
  ];
  const missing = h(
    "p",
    {class: "note"},
    "The question file says neither how many hops its questions need nor of which type they are.",
  );
  replace(at("group-tables"), tables.some(Boolean) ? tables : missing);
}

function groupTable(title, field, filter, write) {
  const groups = runs[0][field];
  if (!groups.length || (groups.length === 1 && !groups[0].name)) return null;
  const top = scaleTop(runs.flatMap((run) => run[field].map((group) => group[state.measure])));
  const row = (group, place) =>
    h(
      "tr",
      {},
      h(
        "th",
        {scope: "row"},
        h(
          "button",
          {
            type: "button",
            class: "link",
            title: "Show these questions",
            onclick: () => showGroup(filter, group.name),
          },
          write(group.name),
        ),
      ),
      h("td", {class: "is-number muted"}, number(group.n)),
      runs.map((run, which) => h("td", {}, groupCell(run[field][place][state.measure], top, which))),
    );
  const rows = groups.map(row);
  const body = h("tbody", {}, rows.slice(0, LISTED_GROUPS));
  const rest = rows.slice(LISTED_GROUPS);
  const more = rest.length
    ? h(
        "button",
        {
          type: "button",
          class: "more",
          onclick: (event) => {
            body.append(...rest);
            event.target.remove();
          },
        },
        `Show ${rest.length} more`,
      )
    : null;
  return h(
    "div",
    {class: "card group-card"},
    h("h3", {}, `${title}, ${measureTitle[state.measure]}`),
    h(
      "div",
      {class: "scroller", tabindex: 0, role: "region", "aria-label": title},
      h(
        "table",
        {class: "groups"},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {scope: "col"}, ""),
            h("th", {scope: "col", class: "is-number"}, "n"),
            runs.map((_, run) => h("th", {scope: "col"}, runName(run))),
          ),
        ),
        body,
      ),
    ),
    more,
  );
}

function groupCell(interval, top, run) {
  return h(
    "div",
    {class: "score"},
    h("span", {class: "figure"}, percent(interval.mean)),
    h("span", {class: "range"}, range(interval)),
    intervalBar(interval, top, run),
  );
}
