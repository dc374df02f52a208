// One question: its gold answers and passages, and what one run, or two beside each other, did about it.

const CHIPS = 3; // passages that a search names before it is opened, beside the gold ones
let drawing = 0;

async function showTrace(position, shown) {
  const turn = (drawing += 1);
  const gold = index.answers[position];
  const head = [
    h("h3", {id: "trace-title", tabindex: -1}, index.texts[position]),
    h("p", {class: "tags"}, [index.ids[position], ...tagsOf(position)].map((tag) => h("span", {class: "tag"}, tag))),
    h("p", {}, gold.length ? ["Gold answer: ", h("b", {}, gold.join(" / "))] : "No gold answer"),
  ];
  try {
    const traces = await Promise.all(shown.map((run) => traceOf(run, position)));
    if (turn !== drawing) return; // another question was opened meanwhile
    const columns = shown.map((run, place) => drawColumn(run, position, traces[place]));
    replace(at("trace"), head, drawGold(index.gold[position], traces, shown), h("div", {class: "columns"}, columns));
  } catch (error) {
    console.error(error);
    replace(at("trace"), head, h("p", {class: "warning"}, `This question cannot be shown: ${error.message}`));
  }
}

// Gold passages, or pages, with what each run found of them; and how the dataset takes the question apart. A run
// counts those that it has places of: another index may call them otherwise.
function drawGold(about, traces, shown) {
  const places = traces.map((each) => new Map(each.places));
  const view = {gold: new Set(about.supporting)};
  const found = (run, place) => {
    const rank = places[run].get(place);
    if (rank === undefined) return null;
    const text = rank ? `found, ${about.by_page ? "page" : "place"} ${rank}` : "missed";
    return h("span", {class: rank && rank <= report.recall_at ? "hit" : "miss"}, marker(shown[run]), text);
  };
  const hasText = !about.by_page && !about.by_name;
  const rows = (about.supporting ?? [])
    .filter((place) => places.some((each) => each.has(place)))
    .map((place) => h("li", {}, drawPassage(place, null, view, hasText), shown.map((_, run) => found(run, place))));
  const hops = (about.decomposition ?? []).map(([question, answer]) =>
    h("li", {}, question, " \u2192 ", h("b", {}, answer)),
  );
  if (!rows.length && !hops.length) return null;
  return h(
    "div",
    {class: "gold-card"},
    rows.length ? [h("h4", {}, about.by_page ? "Gold pages" : "Gold passages"), h("ul", {}, rows)] : null,
    hops.length ? [h("h4", {}, "Gold decomposition"), h("ol", {}, hops)] : null,
  );
}

function drawColumn(run, position, item) {
  const head = h("h4", {}, runName(run), " ", pill(run, position));
  if (!rowOf(run, position))
    return h("section", {class: "column"}, head, h("p", {}, "This run was not asked this question."));
  const view = {gold: new Set(item.gold), hasGold: Boolean(item.places)};
  return h(
    "section",
    {class: "column", "aria-label": runs[run]},
    head,
    item.error ? drawError(item.error) : h("p", {class: "prediction"}, item.answer || "(an empty answer)"),
    h("p", {class: "note"}, figuresOf(run, position, item).join(" \u00b7 ")),
    drawUsage(item.usage ?? {}),
    item.steps ? drawTree(item, view) : h("p", {class: "note"}, "No steps were kept for this question."),
    drawPassages("Passages that the final answer was shown", item.context, view),
    drawPassages("Passages read on the way to the answer, in this order", item.read, view),
    drawPassages("All passages collected", item.collected, view),
  );
}

function figuresOf(run, position, item) {
  const {em, f1, recall} = rowOf(run, position);
  return [
    em === null ? "" : `EM ${percent(em)}, F1 ${percent(f1)}`,
    recall === null ? "" : `recall@${report.recall_at} ${percent(recall)}`,
    item.hops === undefined ? "" : counted(item.hops, "step"),
    seconds(item.seconds),
    item.computed ? `computed by ${item.computed}` : "",
    item.stopped ? `stopped: ${item.stopped.replaceAll("_", " ")}` : "",
  ].filter(Boolean);
}

function drawError(error) {
  const [summary, ...traceback] = error.trim().split("\n");
  const rest = traceback.length ? fold("traceback", () => h("pre", {}, traceback.join("\n"))) : null;
  return [h("p", {class: "warning"}, summary), rest];
}

// What opens at a click; its content is made then, so that a long trace stays light.
function fold(summary, content, attributes = {}) {
  const element = h("details", attributes, h("summary", {}, summary));
  element.addEventListener("toggle", () => element.append(content()), {once: true});
  return element;
}

function drawUsage(usage) {
  const roles = Object.entries(usage);
  if (!roles.length) return null;
  const [calls, prompt, generated, computed] = [0, 1, 2, 3].map((place) =>
    roles.reduce((total, [, values]) => total + values[place], 0),
  );
  const title = `${number(prompt + generated)} tokens in ${counted(calls, "call")}, ${number(computed)} computed`;
  const heads = ["role", "calls", "prompt", "generated", "computed"].map((head) => h("th", {scope: "col"}, head));
  const rows = roles.map(([role, values]) =>
    h("tr", {}, h("th", {scope: "row"}, roleTitle(role)), values.map((value) => h("td", {}, number(value)))),
  );
  const table = () => h("table", {class: "figures"}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
  return fold(title, table);
}

// --- the tree: every step stands at the end of its path, such as "chain 3/hop 2", "tree/child 1/rollout 2/hop 3"

const newNode = (name) => {
  const kind = name.replace(/ ?\d+$/, "");
  return {name, kind, number: Number(name.slice(kind.length)), children: new Map(), steps: [], chain: null, chosen: false};
};

function treeOf(trace) {
  const root = newNode("");
  const along = (path) => (path ?? "").split("/").filter((part) => part && !part.startsWith("retry "));
  const place = (path) =>
    along(path).reduce((node, name) => {
      if (!node.children.has(name)) node.children.set(name, newNode(name));
      return node.children.get(name);
    }, root);
  for (const step of trace.steps ?? []) place(step.path).steps.push(step);
  for (const chain of trace.chains ?? []) {
    const node = place(chain.path);
    node.chain = chain;
    node.steps.unshift(...(chain.steps ?? [])); // what was taken over came first
  }
  let node = root;
  for (const name of along(trace.chosen)) {
    node = node.children.get(name);
    node.chosen = true;
  }
  return root;
}

// In the order in which each kind began, and then by number: what runs at the same time comes in any order.
function ordered(node) {
  const nodes = [...node.children.values()];
  const kinds = [...new Set(nodes.map(({kind}) => kind))];
  return nodes.sort((a, b) => kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || a.number - b.number);
}

function tokensOf(node) {
  const own = node.steps.reduce((sum, {usage}) => sum + (usage ? usage[1] + usage[2] : 0), 0);
  return [...node.children.values()].reduce((sum, child) => sum + tokensOf(child), own);
}

function drawTree(trace, view) {
  const root = treeOf(trace);
  const scored = trace.chains?.some(({score, value}) => (score ?? value) !== undefined);
  return h(
    "div",
    {class: "tree"},
    scored ? h("p", {class: "note"}, "Scores and values of chains: lower is better.") : null,
    ordered(root).map((node) => drawNode(node, view, !trace.chosen)),
    drawSteps(root, view),
  );
}

// Chains and states of a tree that were not chosen are folded away.
const FOLDED = ["chain", "child", "rollout"];

function drawNode(node, view, isOpen) {
  const {chain} = node;
  const score = chain?.value ?? chain?.score;
  const tags = [
    score === undefined ? "" : `${chain.value === undefined ? "score" : "value"} ${minus(score.toFixed(2))}`,
    chain?.stopped ? `stopped: ${chain.stopped}` : "",
    chain && node.chosen ? "chosen" : "",
  ];
  const tokens = tokensOf(node);
  const title = h(
    "summary",
    {},
    h("b", {}, node.name === "question" ? "search with the question itself" : node.name),
    tags.filter(Boolean).map((tag) => h("span", {class: "tag"}, tag)),
    tokens ? h("span", {class: "cost"}, `${number(tokens)} tokens`) : null,
  );
  const children = ordered(node).map((child) => drawNode(child, view, isOpen));
  return h(
    "details",
    {class: node.chosen ? "node chosen" : "node", open: isOpen || node.chosen || !FOLDED.includes(node.kind)},
    title,
    drawSteps(node, view),
    h("div", {class: "children"}, children),
  );
}

// --- steps

const ROLE_TITLES = {
  sub_query: "sub-query",
  sub_answer: "sub-answer",
  final: "final answer",
  stop_check: "enough?",
};
const roleTitle = (role) => ROLE_TITLES[role] ?? role;

function drawSteps(node, view) {
  const checks = node.steps.filter(({kind, role}) => kind === "score" && role === "stop_check");
  const asked = node.steps.find(({role}) => role === "sub_query")?.texts?.[0]?.trim();
  return node.steps.map((step) => {
    if (step.kind === "search") return drawSearch(step, step.query === asked, view);
    // Yes is scored first, then No.
    const reply = checks.includes(step) ? (checks.indexOf(step) % 2 ? "No: " : "Yes: ") : "";
    const said = step.kind === "score" ? h("p", {}, reply, likelihood(step)) : drawTexts(step);
    const prompt = step.prompt ? fold("prompt", () => h("pre", {}, step.prompt)) : null;
    return drawLine(roleTitle(step.role), said, drawNotes(step), prompt);
  });
}

const drawLine = (role, ...parts) =>
  h("div", {class: "step"}, h("span", {class: "role"}, role), h("div", {class: "said"}, parts));

// A search for the sub-query that stands above it need not repeat it.
const drawSearch = (step, isRepeated, view) =>
  drawLine(
    "search",
    isRepeated ? null : h("p", {}, step.query || "(an empty query, not asked)"),
    step.note ? h("p", {class: "note"}, step.note) : null,
    drawHits(step.hits, view),
  );

// Of all its tokens, since sums decide, and of one. Minus infinity is null in JSON.
function likelihood({mean, tokens = 0}) {
  if (mean === null) return "impossible";
  const [sum, one] = [mean * tokens, mean].map((value) => minus(value.toFixed(3)));
  return `log P ${sum}` + (tokens === 1 ? "" : `, ${one} for each of ${counted(tokens, "token")}`);
}

function drawTexts({texts = [], refused}) {
  const said = (text) => text.trim() || "(nothing)";
  if (texts.length > 1) return h("ol", {}, texts.map((text) => h("li", {}, said(text))));
  return h("p", {class: refused ? "refused" : null}, said(texts[0] ?? ""));
}

// What a reader should know of a call: replies and prompts that were cut.
function drawNotes(step) {
  const notes = [
    step.cut_off ? `${step.texts?.length > 1 ? `${step.cut_off} ` : ""}cut off at the token limit` : "",
    ...(step.dropped ?? []).map(([kind, count]) => `prompt too long: ${counted(count, kind)} left out`),
    step.cut ? `prompt too long: ${counted(step.cut, "token")} cut` : "",
  ].filter(Boolean);
  return notes.length ? h("p", {class: "warning"}, notes.join("; ")) : null;
}

// --- passages: by title, gold ones marked, with their texts if the report has them

function drawHits(hits, view) {
  if (!hits?.length) return h("p", {class: "note"}, "nothing was found");
  const ranks = hits.flatMap(([place], rank) => (view.gold.has(place) ? [rank + 1] : []));
  const named = hits.filter(([place], rank) => rank < CHIPS || view.gold.has(place));
  const gold = view.hasGold ? `, ${ranks.length ? `gold at ${ranks.join(", ")}` : "no gold"}` : "";
  const title = [`${counted(hits.length, "passage")}${gold} `, named.map(([place]) => chip(place, view))];
  return fold(title, () => drawList(hits, view), {class: "hits"});
}

function drawPassages(title, places, view) {
  if (!places?.length) return null;
  return fold(`${title} (${places.length})`, () => drawList(places.map((place) => [place, null]), view));
}

const drawList = (hits, view) =>
  h("ol", {}, hits.map(([place, score]) => h("li", {}, drawPassage(place, score, view))));

function chip(place, {gold}) {
  const [id, title] = passages[place];
  const star = gold.has(place) ? h("span", {"aria-label": "gold passage", role: "img"}, "\u2605 ") : null;
  return h("span", {class: star ? "chip gold" : "chip"}, star, title || id);
}

function drawPassage(place, score, view, hasText = true) {
  const [id, title] = passages[place];
  const line = [
    chip(place, view),
    title && title !== id ? h("span", {class: "cost"}, id) : null,
    score === null ? null : h("span", {class: "cost"}, score.toPrecision(4)),
  ];
  if (!report.texts_per_block || !hasText) return h("div", {class: "passage"}, line);
  return fold(line, () => drawText(place), {class: "passage"});
}

function drawText(place) {
  const text = h("p", {class: "passage-text"}, "\u2026");
  const size = report.texts_per_block;
  block(`texts-${Math.floor(place / size)}`).then((texts) => {
    const found = texts[place % size];
    text.textContent = found ? found.join("\n") : "The index that this report was made with does not have it.";
  });
  return text;
}
