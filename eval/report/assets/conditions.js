// What must be known beside the figures: conditions, settings, where tokens went and why methods stopped.

// What must be known: shared conditions in one list; what differs between runs in a table; every setting
// folded away.
function drawConditions() {
  const names = Object.keys(runs[0].conditions);
  const same = (name) => runs.every((run) => run.conditions[name] === runs[0].conditions[name]);
  const settings = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const varied = settings.filter((name) => runs.some((run) => run.settings[name] !== runs[0].settings[name]));
  const described = ["method", "model", "retriever", "prompts", "seed", "budget"];
  const rows = [
    ...names.filter((name) => !same(name)).map((name) => [name, (run) => run.conditions[name]]),
    ...varied
      .filter((name) => !described.includes(name))
      .map((name) => [name, (run) => run.settings[name] ?? "\u2013"]),
  ];
  const shared = names.filter(same).map((name) => [h("dt", {}, name), h("dd", {}, runs[0].conditions[name])]);
  replace(
    at("conditions"),
    folded(
      runs.length > 1 ? "Shared by all runs" : "Conditions",
      h("dl", {class: "pairs"}, shared),
      runs.length === 1,
    ),
    rows.length && runs.length > 1
      ? folded(`What differs between the runs (${rows.length})`, settingsTable(rows), rows.length <= 12)
      : null,
    folded("Where the tokens went", rolesTable()),
    folded("Why the methods stopped", stopsTable()),
    folded(
      "Every setting",
      settingsTable(settings.map((name) => [name, (run) => run.settings[name] ?? "\u2013"])),
    ),
  );
}

const folded = (title, content, open = false) =>
  h("details", {class: "card fold", open}, h("summary", {}, title), h("div", {class: "scroller", role: "region", "aria-label": title, tabindex: 0}, content));

function settingsTable(rows) {
  return h(
    "table",
    {class: "settings"},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("td"),
        runs.map((_, run) => h("th", {scope: "col"}, runName(run))),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map(([name, value]) =>
        h(
          "tr",
          {},
          h("th", {scope: "row"}, name),
          runs.map((run) => h("td", {}, value(run))),
        ),
      ),
    ),
  );
}

function rolesTable() {
  const heads = ["", "Role", "Calls", "Prompt", "Generated", "Computed"];
  const rows = runs.flatMap((each, run) =>
    each.roles.map((role, place) =>
      h(
        "tr",
        {class: place ? null : "first"},
        h("th", {scope: "row"}, place ? "" : runName(run)),
        h("td", {}, ROLE_TITLES[role.role] ?? role.role),
        [role.calls].map((value) => h("td", {class: "is-number"}, decimal(value))),
        [role.prompt, role.generated, role.computed].map((value) =>
          h("td", {class: "is-number"}, number(value)),
        ),
      ),
    ),
  );
  return h(
    "table",
    {class: "settings"},
    h("caption", {}, "Tokens per question, by what they were asked for."),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        heads.map((head, place) => h("th", {scope: "col", class: place > 1 ? "is-number" : null}, head)),
      ),
    ),
    h("tbody", {}, rows),
  );
}

function stopsTable() {
  const rows = runs.flatMap((each, run) =>
    each.stops.map((stop, place) =>
      h(
        "tr",
        {class: place ? null : "first"},
        h("th", {scope: "row"}, place ? "" : runName(run)),
        h("td", {}, stop.reason || "not said"),
        h("td", {class: "is-number"}, number(stop.count)),
        h("td", {class: "is-number"}, `${percent(stop.count / each.summary.n)}%`),
      ),
    ),
  );
  return h(
    "table",
    {class: "settings"},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["", "Reason", "Questions", "Share"].map((head, place) =>
          h("th", {scope: "col", class: place > 1 ? "is-number" : null}, head),
        ),
      ),
    ),
    h("tbody", {}, rows),
  );
}
