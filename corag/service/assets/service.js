// The page of the answer service. All text comes into the page by h(), which makes text nodes of it. All
// addresses are relative, so that it works below a path, too.

let asking = null; // the AbortController of what is under way

const headers = () => {
  const key = sessionStorage.getItem("key");
  return key ? {authorization: `Bearer ${key}`} : {};
};

function say(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("is-wrong", wrong);
}

// What is wrong, in a sentence, from a reply that is no answer. Without a right key the form for it is shown.
async function wrongOf(reply) {
  if (reply.status === 401) {
    const wasGiven = sessionStorage.getItem("key");
    sessionStorage.removeItem("key");
    showForm("enter");
    return new Error(wasGiven ? "This key is not known here." : "This service wants a key.");
  }
  const body = await reply.json().catch(() => null);
  const told = body?.error?.message ?? `the service replied with status ${reply.status}.`;
  const again = reply.headers.get("retry-after");
  return new Error(again ? `${told} (Try again in ${again} s.)` : told);
}

async function fetched(path) {
  const reply = await fetch(path, {headers: headers()});
  if (!reply.ok) throw await wrongOf(reply);
  return reply.json();
}

function showForm(id) {
  for (const name of ["enter", "ask"]) at(name).hidden = name !== id;
  at(id === "enter" ? "key" : "question").focus();
}

// --- an answer, while it grows

function newLane(preset) {
  const lane = {
    preset,
    state: h("span", {class: "tag busy"}, "waiting"),
    answer: h("p", {class: "answer", hidden: true}),
    cost: h("p", {class: "cost"}),
    sources: h("ul", {class: "sources", "aria-label": "Sources"}),
    chain: h("ul", {class: "chain", "aria-label": `Steps of ${preset}`}),
    places: new Map(),
    calls: 0,
    tokens: 0,
    computed: 0,
  };
  lane.places.set("", lane.chain);
  lane.element = h(
    "article",
    {class: "lane card", "aria-label": preset},
    h("div", {class: "lane-head"}, h("h2", {}, preset), lane.state),
    lane.answer,
    lane.cost,
    lane.sources,
    lane.chain,
  );
  return lane;
}

// The list of what happened at a place such as "chain 3/hop 2", made when it is first wanted.
function placeOf(lane, path) {
  if (!lane.places.has(path)) {
    const cut = path.lastIndexOf("/");
    const above = placeOf(lane, cut < 0 ? "" : path.slice(0, cut));
    const list = h("ul", {});
    above.append(h("li", {}, h("span", {class: "place"}, path.slice(cut + 1)), list));
    lane.places.set(path, list);
  }
  return lane.places.get(path);
}

function addStep(lane, step) {
  if (step.usage) {
    lane.calls += step.usage.calls;
    lane.tokens += step.usage.prompt + step.usage.generated;
    lane.computed += step.usage.computed_prompt + step.usage.computed_generated;
  }
  // A search for the sub-query that stands just above it need not repeat it.
  const place = placeOf(lane, step.path);
  const repeated = step.kind === "search" && step.query === place.dataset.asked;
  if (step.role === "sub_query") place.dataset.asked = step.texts[0]?.trim() ?? "";
  place.append(h("li", {class: step.kind}, drawStep(step, repeated)));
  lane.state.textContent = "thinking";
  showCost(lane);
}

function drawStep(step, repeated) {
  const role = (name) => h("span", {class: "role"}, name.replaceAll("_", " "));
  if (step.kind === "search") return drawSearch(step, role, repeated);
  if (step.kind === "score") {
    // Minus infinity is null in JSON.
    const mean = step.log_likelihood === null ? "impossible" : `${(step.log_likelihood / Math.max(1, step.tokens)).toFixed(3)} a token`;
    return [role(step.role), h("span", {class: "cost"}, mean)];
  }
  return step.texts.map((text) => h("div", {}, role(step.role), h("span", {class: "said"}, text.trim() || "(nothing)")));
}

const TITLES = 3; // of passages that are named before the list is opened

function drawSearch(step, role, repeated) {
  const names = step.hits.slice(0, TITLES).map((hit) => hit.title || hit.id);
  const more = step.hits.length > TITLES ? " \u2026" : "";
  const found = [counted(step.hits.length, "passage"), names.join(", ")].filter(Boolean).join(": ") + more;
  return h(
    "details",
    {},
    h("summary", {}, role("searched"), repeated ? null : [h("span", {class: "said"}, step.query || "(nothing)"), " "], h("span", {class: "cost"}, found)),
    h("ol", {class: "hits"}, step.hits.map((hit) => h("li", {}, drawPassage(hit)))),
  );
}

// Where a passage stands: its file with page, slide or row.
function placeIn(passage) {
  if (!passage.source) return "";
  const isNumbered = typeof passage.page === "number" || /^\w+$/.test(passage.page ?? " ");
  return [passage.source, isNumbered ? `page ${passage.page}` : passage.page].filter(Boolean).join(", ");
}

// A passage by its title and place, whose text is fetched when it is opened.
function drawPassage(passage) {
  const text = h("p", {class: "passage-text"}, "…");
  const show = async (event) => {
    if (!event.target.open || text.dataset.asked) return;
    text.dataset.asked = "yes";
    try {
      text.textContent = (await fetched(`v1/passages/${encodeURIComponent(passage.id)}`)).text;
    } catch (error) {
      text.textContent = error.message;
    }
  };
  const mark = passage.number ? `[${passage.number}] ` : "";
  const line = h("summary", {}, mark, passage.title || passage.id, " ", h("span", {class: "cost"}, placeIn(passage)));
  return h("details", {ontoggle: show}, line, text);
}

function showCost(lane, ended = null) {
  const parts = [
    counted(lane.calls, "call"),
    `${number(lane.tokens)} tokens (${number(lane.computed)} computed)`,
    ended ? seconds(ended.seconds) : null,
    ended?.stopped ? `stopped: ${ended.stopped}` : null,
  ];
  lane.cost.textContent = parts.filter(Boolean).join(" · ");
}

// The answer so far: more of it comes.
function grow(lane, text) {
  lane.answer.hidden = false;
  lane.answer.textContent = text;
  lane.state.textContent = "writing";
}

function finish(lane, text, ended) {
  grow(lane, text || "(an empty answer)");
  if (ended.citations.length) replace(lane.answer, ended.citations.map(drawClaim));
  lane.state.textContent = "answered";
  lane.state.classList.remove("busy");
  // What is only measured is no part of what the answer cost.
  const usages = Object.entries(ended.usage).filter(([role]) => role !== "measure").map(([, usage]) => usage);
  const sum = (name) => usages.reduce((total, usage) => total + usage[name], 0);
  lane.calls = sum("calls");
  lane.tokens = sum("prompt") + sum("generated");
  lane.computed = sum("computed_prompt") + sum("computed_generated");
  showCost(lane, ended);
  replace(lane.sources, ended.sources.map(drawSource));
}

// A sentence of the answer, whose numbers open its sources. One that they do not bear out is marked.
function drawClaim(claim) {
  const open = (event) => {
    const passage = document.querySelector(`${event.target.hash} details`);
    if (passage) passage.open = true;
  };
  const link = (digits) => h("a", {href: `#source-${digits}`, onclick: open}, digits);
  const odd = (pieces, draw) => pieces.map((piece, index) => (index % 2 ? draw(piece) : piece));
  const parts = odd(claim.text.split(/(\[\d[\d,; ]*\])/), (list) => odd(list.split(/(\d+)/), link));
  if (!claim.fault) return h("span", {}, parts, " ");
  return [h("mark", {}, parts), h("span", {class: "fault"}, ` (${claim.fault}) `)];
}

// What the model read for the answer comes first; what was only found is dimmed.
function drawSource(source) {
  const about = source.read ? "read for the answer" : "found, not read";
  const id = source.number ? {id: `source-${source.number}`} : {};
  return h("li", {class: source.read ? "read" : "unread", title: about, ...id}, drawPassage(source));
}

function fail(lane, message, state) {
  lane.answer.hidden = false;
  lane.answer.classList.add("is-wrong");
  lane.answer.textContent = message;
  lane.state.textContent = state;
  lane.state.classList.remove("busy");
}

// --- asking

async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const pieces = (rest + value).split("\n\n");
    rest = pieces.pop();
    for (const piece of pieces) {
      if (piece === "data: [DONE]") return;
      if (piece.startsWith("data: ")) yield JSON.parse(piece.slice(6));
    }
  }
}

async function answerInto(lane, question, signal) {
  let text = "";
  let ended = null;
  try {
    // The page shows sources by itself, so that the text is the answer alone.
    const messages = [{role: "user", content: question}];
    const body = {model: lane.preset, stream: true, messages, corag: {sources: 0}};
    const reply = await fetch("v1/chat/completions", {
      method: "POST",
      headers: {"content-type": "application/json", ...headers()},
      body: JSON.stringify(body),
      signal,
    });
    if (!reply.ok) throw await wrongOf(reply);
    for await (const chunk of events(reply)) {
      if (chunk.error) throw new Error(chunk.error.message);
      const more = chunk.choices[0]?.delta.content;
      if (more) grow(lane, (text += more));
      if (chunk.corag?.step) addStep(lane, chunk.corag.step);
      else if (chunk.corag) ended = chunk.corag;
    }
    if (!ended) throw new TypeError("the stream ended early");
    finish(lane, text, ended);
  } catch (error) {
    if (signal.aborted) fail(lane, "Cancelled.", "cancelled");
    else if (error instanceof TypeError)
      fail(lane, "The connection was lost before the answer was there. Ask again.", "lost");
    else fail(lane, error.message, "failed");
  }
}

async function ask() {
  const question = at("question").value.trim();
  if (!question || asking) return;
  sessionStorage.setItem("question", question);
  const lane = newLane(at("preset").value);
  replace(at("answers"), lane.element);
  asking = new AbortController();
  at("cancel").hidden = false;
  at("send").disabled = true;
  say("Asking …");
  await answerInto(lane, question, asking.signal);
  asking = null;
  at("cancel").hidden = true;
  at("send").disabled = false;
  at("question").focus();
  say(lane.state.textContent === "answered" ? "Answered." : "There is no answer.", lane.state.textContent !== "answered");
}

// Show the form for questions, if the key is right or none is wanted.
async function enter() {
  try {
    const {data} = await fetched("v1/models");
    replace(at("preset"), data.map(({id}) => h("option", {value: id}, id)));
    showForm("ask");
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

// --- the page itself

function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

at("theme").addEventListener("click", () => {
  const shown = document.documentElement.dataset.theme;
  const dark = shown ? shown === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("theme", dark ? "light" : "dark");
  showTheme(localStorage.getItem("theme"));
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
at("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    ask();
  }
});
at("cancel").addEventListener("click", () => asking?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") asking?.abort();
});
at("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", at("key").value.trim());
  enter();
});

showTheme(localStorage.getItem("theme"));
at("question").value = sessionStorage.getItem("question") ?? "";
enter();
