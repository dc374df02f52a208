// A trace as a tree: every step stands at the end of its path, such as "chain 3/hop 2" or "tree/child
// 1/rollout 2/hop 3".

const KIND_ORDER = ["question", "chain", "tree", "step", "hop", "rollout", "child"];

function newNode(name) {
  const kind = name.replace(/ ?\d+$/, "");
  return {
    name,
    kind,
    number: Number(name.slice(kind.length)) || 0,
    children: new Map(),
    steps: [],
    retries: 0,
    record: null,
    chosen: false,
    open: false,
  };
}

function nodeAt(root, path) {
  let node = root;
  for (const part of path.split("/").filter(Boolean)) {
    if (part.startsWith("retry ")) {
      node.retries += 1;
      continue;
    }
    if (!node.children.has(part)) node.children.set(part, newNode(part));
    node = node.children.get(part);
  }
  return node;
}

function treeOf(trace) {
  const root = newNode("");
  for (const step of trace.steps ?? []) nodeAt(root, step.path ?? "").steps.push(step);
  for (const chain of trace.chains ?? []) nodeAt(root, chain.path).record = chain;
  if (trace.chosen) {
    let node = root;
    for (const part of trace.chosen.split("/")) {
      node = node.children.get(part);
      node.chosen = node.open = true;
    }
    node.kept = trace.chains.length > 1;
    for (const child of node.children.values()) child.chosen = child.kind === "hop";
  } else {
    openAll(root); // a failed question has no chain that was kept
  }
  return root;
}

function openAll(node) {
  node.open = true;
  node.children.forEach(openAll);
}

function ordered(node) {
  const rank = (child) =>
    KIND_ORDER.includes(child.kind) ? KIND_ORDER.indexOf(child.kind) : KIND_ORDER.length;
  return [...node.children.values()].sort((a, b) => rank(a) - rank(b) || a.number - b.number);
}

const searchOf = (node) => node.steps.find((step) => step.kind === "search");
const lastOf = (node, role) => node.steps.filter((step) => step.role === role).pop();

// What a hop, or a state of a search tree, asked and was answered; null for places that are neither.
function exchange(node) {
  if (node.kind !== "hop" && node.kind !== "child") return null;
  const search = searchOf(node);
  if (!search && node.record?.newest) {
    const [query, answer, refused, found] = node.record.newest;
    return {query, answer, refused, hits: found.map((place) => [place, null]), reused: true};
  }
  const asked = node.kind === "hop" ? lastOf(node, "sub_query")?.texts?.[0] : "";
  const reply = lastOf(node, "sub_answer");
  const nothing = search && !search.hits.length;
  return {
    query: search?.query || asked || "",
    answer: reply?.texts?.[0] ?? (nothing ? "nothing was found" : ""),
    refused: Boolean(reply?.refused || nothing),
    hits: search?.hits ?? null,
    reused: false,
  };
}

const chainScore = (node) => {
  const {record} = node;
  if (node.kind === "child") return record?.value ?? null;
  if (record) return record.score ?? null;
  return lastOf(node, "score")?.mean ?? null;
};

function costOf(node) {
  const cost = {calls: 0, tokens: 0, computed: 0, seconds: 0};
  const add = (each) => {
    for (const step of each.steps) {
      cost.seconds += step.seconds ?? 0;
      if (!step.usage) continue;
      cost.calls += step.usage[0];
      cost.tokens += step.usage[1] + step.usage[2];
      cost.computed += step.usage[3];
    }
    for (const child of each.children.values()) add(child);
  };
  add(node);
  return cost;
}

const hasScores = (node) =>
  (["chain", "child", "rollout"].includes(node.kind) && chainScore(node) !== null) ||
  [...node.children.values()].some(hasScores);

function drawTree(root, view) {
  return h(
    "div",
    {class: "tree"},
    hasScores(root) ? h("p", {class: "note"}, "Scores and values of chains: lower is better.") : null,
    ordered(root).map((node) => drawNode(node, view)),
    root.steps.map((step) => drawStep(step, view)),
  );
}

function drawNode(node, view) {
  const found = exchange(node);
  const nested = ordered(node);
  const title = [
    h("span", {class: "node-name"}, node.name === "question" ? "search with the question itself" : node.name),
    scoreTag(node),
  ];
  if (node.record?.stopped) title.push(h("span", {class: "tag"}, `stopped: ${node.record.stopped}`));
  if (node.kept) title.push(h("span", {class: "tag chosen"}, "chosen"));
  if (found?.reused) title.push(h("span", {class: "tag"}, "from a rollout"));
  if (node.retries) title.push(h("span", {class: "tag"}, `asked ${node.retries + 1} times`));
  const classes = `node node-${node.kind || "other"}${node.chosen ? " is-chosen" : ""}`;
  const told = found ? node.steps.filter((step) => isPartOf(found, step)) : [];
  const shown = node.steps.filter(
    (step) => !told.includes(step) && !(step.role === "score" && chainScore(node) !== null),
  );
  const body = [
    found ? drawExchange(found, told, view) : null,
    inPairs(shown).map(([step, second]) => (second ? drawDecision(step, second) : drawStep(step, view))),
    nested.length
      ? h(
          "div",
          {class: "children"},
          nested.map((child) => drawNode(child, view)),
        )
      : null,
  ];
  if (node.kind === "hop" || node.kind === "step")
    return h("section", {class: classes}, h("div", {class: "node-head"}, title, costTag(node)), body);
  const summary = [
    title,
    nested.length && !found ? h("span", {class: "muted"}, countKinds(nested)) : null,
    found ? h("span", {class: "node-gist"}, found.query) : null,
    costTag(node),
  ];
  return h(
    "details",
    {class: classes, open: node.open || !KIND_ORDER.includes(node.kind)},
    h("summary", {class: "node-head"}, summary),
    h("div", {class: "node-body"}, body),
  );
}

// Whether a step says no more than the sub-query and sub-answer that are shown for it.
function isPartOf(found, step) {
  const asked = step.role === "sub_query" && step.texts?.length === 1 && step.texts[0].trim() === found.query;
  return asked || step.kind === "search" || step.role === "sub_answer";
}

function countKinds(nodes) {
  const counts = new Map();
  for (const node of nodes) counts.set(node.kind, (counts.get(node.kind) ?? 0) + 1);
  const plural = (kind, count) =>
    count === 1 ? `1 ${kind}` : kind === "child" ? `${count} children` : `${count} ${kind}s`;
  return [...counts].map(([kind, count]) => plural(kind, count)).join(", ");
}

function scoreTag(node) {
  const score = ["chain", "child", "rollout"].includes(node.kind) ? chainScore(node) : null;
  return score === null
    ? null
    : h(
        "span",
        {class: "tag score-tag"},
        `${node.kind === "child" ? "value" : "score"} ${score.toFixed(2).replace("-", "\u2212")}`,
      );
}

function costTag(node) {
  const cost = costOf(node);
  const parts = [
    cost.tokens ? `${number(cost.tokens)} tokens` : "",
    cost.seconds >= 0.005 ? seconds(cost.seconds) : "",
  ].filter(Boolean);
  return parts.length
    ? h("span", {class: "cost", title: "Seconds are of waiting, added up over calls"}, parts.join(" \u00b7 "))
    : null;
}

function drawExchange(found, told, view) {
  return h(
    "div",
    {class: "exchange"},
    h("p", {class: "sub-query"}, found.query || "no new sub-query came"),
    found.answer ? h("p", {class: found.refused ? "sub-answer refused" : "sub-answer"}, found.answer) : null,
    found.hits ? drawHits(found.hits, view) : null,
    told.map((step) => [drawNotes(step, `${ROLE_TITLES[step.role] ?? step.role}: `), drawPrompt(step)]),
  );
}

// What a reader should know of a call: replies and prompts that were cut.
function drawNotes(step, before = "") {
  const notes = [];
  if (step.cut_off)
    notes.push(`${step.texts?.length > 1 ? `${step.cut_off} ` : ""}cut off at the token limit`);
  for (const [kind, count] of step.dropped ?? [])
    notes.push(`prompt too long: ${counted(count, kind)} left out`);
  if (step.cut) notes.push(`prompt too long: ${counted(step.cut, "token")} cut`);
  return notes.length ? h("p", {class: "warning"}, before, notes.join("; ")) : null;
}

// Yes is scored first, then No: both are one decision.
function inPairs(steps) {
  const groups = [];
  for (const step of steps) {
    const last = groups.at(-1);
    const decides = (each) => each.kind === "score" && each.role === "stop_check";
    if (last?.length === 1 && decides(step) && decides(last[0])) last.push(step);
    else groups.push([step]);
  }
  return groups;
}

function drawDecision(yes, no) {
  // Of all its tokens, since the sums decide: a No of two tokens is not compared by its mean.
  const sum = (step) => (step.mean * (step.tokens || 1)).toFixed(2).replace("-0.00", "0.00").replace("-", "\u2212");
  const [prompt, generated] = [1, 2].map((each) => (yes.usage?.[each] ?? 0) + (no.usage?.[each] ?? 0));
  return drawLine(
    yes,
    h("p", {}, h("span", {class: "muted"}, "log P: "), `Yes ${sum(yes)}, No ${sum(no)}`),
    [drawNotes(yes), drawNotes(no)],
    h("p", {class: "cost"}, `${number(prompt)} + ${number(generated)} tokens`, spent(yes.seconds + no.seconds)),
  );
}

const spent = (time) => (time >= 0.005 ? ` \u00b7 ${seconds(time)}` : "");
const drawLine = (step, ...parts) =>
  h(
    "div",
    {class: `step step-${step.kind}`},
    h("span", {class: "role"}, ROLE_TITLES[step.role] ?? step.role ?? step.kind),
    h("div", {class: "said"}, parts),
  );

const drawPrompt = (step) =>
  step.prompt ? h("details", {class: "prompt"}, h("summary", {}, "prompt"), h("pre", {}, step.prompt)) : null;

const ROLE_TITLES = {
  sub_query: "sub-query",
  sub_answer: "sub-answer",
  final: "final answer",
  stop_check: "enough?",
  score: "score",
};

function drawStep(step, view) {
  if (step.kind === "search") {
    return drawLine(
      step,
      h("p", {}, step.query || "an empty query, not asked"),
      step.note ? h("p", {class: "note"}, step.note) : null,
      drawHits(step.hits, view),
    );
  }
  const texts = step.texts ?? [];
  const said =
    step.kind === "score"
      ? [
          h(
            "p",
            {},
            `${step.mean.toFixed(3).replace("-", "\u2212")} per token, ${counted(step.tokens ?? 0, "token")}`,
          ),
        ]
      : texts.length > 1
        ? [
            h(
              "ol",
              {class: "samples"},
              texts.map((text) => h("li", {}, text.trim() || "(nothing)")),
            ),
          ]
        : [h("p", {}, texts[0]?.trim() || "(nothing)")];
  const [calls, prompt, generated, computed] = step.usage ?? [0, 0, 0, 0];
  return drawLine(
    step,
    said,
    drawNotes(step),
    drawPrompt(step),
    h(
      "p",
      {class: "cost", title: `${counted(calls, "call")}, ${number(computed)} tokens computed`},
      `${number(prompt)} + ${number(generated)} tokens`,
      spent(step.seconds),
    ),
  );
}
