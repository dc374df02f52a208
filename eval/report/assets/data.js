// The report's data: packed blocks, and what single questions came to. Figures of whole runs are in the page.

const report = JSON.parse(at("report").textContent);
const runs = report.runs; // their names
let index = null; // of all questions
let passages = []; // by number: [id, title]

const percent = (fraction) => (100 * fraction).toFixed(1);
const minus = (text) => text.replace("-", "\u2212");
const option = (value, text, chosen) => h("option", {value, selected: chosen}, text);
const marker = (run) => svg("svg", {class: "marker", "aria-hidden": "true"}, svg("use", {href: `#marker-${run}`}));
const runName = (run) => h("span", {class: "run-name"}, marker(run), runs[run]);

const blocks = new Map();

// A packed block, unpacked when it is needed first.
function block(name) {
  if (!blocks.has(name)) blocks.set(name, unpack(at(name)?.textContent));
  return blocks.get(name);
}

async function unpack(packed) {
  if (!packed) throw new Error("a part of this file is missing: it was not written or copied to its end.");
  if (!("DecompressionStream" in window)) {
    throw new Error("this browser is too old to unpack it: Chrome 123, Firefox 120 and Safari 17.5 can.");
  }
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// What a run did about the question at a position.
async function traceOf(run, position) {
  const size = report.questions_per_block;
  return (await block(`run-${run}-${Math.floor(position / size)}`))[position % size];
}

const rowOf = (run, position) => index.rows[run][position]; // null: a service was not asked it

function outcome(run, position) {
  const row = rowOf(run, position);
  if (!row) return "absent";
  if (row.failed) return "failed";
  if (row.em === null) return "unscored";
  return row.em === 1 ? "right" : "wrong";
}

const GLYPHS = {absent: "\u2013", right: "\u2713", wrong: "\u2717", failed: "!", unscored: "\u00b7"};

function pill(run, position, text) {
  const how = outcome(run, position);
  return h("span", {class: `pill ${how}`, title: how}, h("span", {"aria-hidden": "true"}, GLYPHS[how], " "), text ?? how);
}

const tagsOf = (position) => [
  index.kinds[position],
  index.hops[position] ? `${index.hops[position]}-hop` : "",
].filter(Boolean);
