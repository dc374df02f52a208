// What every part of the report uses: its data, runs, packed blocks, choices.

const overview = JSON.parse(document.getElementById("overview").textContent);
const runs = overview.runs;

const pValue = (p) => (p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`);
const range = (interval) =>
  interval.low === null ? "" : `[${percent(interval.low)}, ${percent(interval.high)}]`;
// The measures that runs are compared in.
const measureTitle = Object.fromEntries(
  overview.columns.filter(({name}) => name in overview.differences).map(({name, title}) => [name, title]),
);
const signed = (points) => {
  const text = Math.abs(points).toFixed(1);
  return (text === "0.0" ? "" : points > 0 ? "+" : "\u2212") + text;
};
const percent = (fraction) => (100 * fraction).toFixed(1);

// Runs are told apart by shape and colour, so that neither is needed.
const SHAPES = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (r) => `M${-r * 0.9} ${-r * 0.9}h${1.8 * r}v${1.8 * r}h${-1.8 * r}z`,
  (r) => `M0 ${-r * 1.15}L${r * 1.1} ${r * 0.85}H${-r * 1.1}z`,
  (r) => `M0 ${-r * 1.25}L${r * 1.25} 0L0 ${r * 1.25}L${-r * 1.25} 0z`,
  (r) => `M0 ${r * 1.15}L${r * 1.1} ${-r * 0.85}H${-r * 1.1}z`,
  (r) =>
    `M${-r * 0.4} ${-r * 1.1}h${0.8 * r}v${0.7 * r}h${0.7 * r}v${0.8 * r}` +
    `h${-0.7 * r}v${0.7 * r}h${-0.8 * r}` +
    `v${-0.7 * r}h${-0.7 * r}v${-0.8 * r}h${0.7 * r}z`,
];
const COLOURS = 7;
const runClass = (run) => `run-colour-${run % COLOURS}`;
const shape = (run, radius, attributes = {}) =>
  svg("path", {d: SHAPES[run % SHAPES.length](radius), ...attributes, class: `mark ${runClass(run)}`});
const marker = (run) =>
  svg(
    "svg",
    {viewBox: "-8 -8 16 16", width: 14, height: 14, class: "marker", "aria-hidden": "true"},
    shape(run, 5.6),
  );
// A run's name, which may break into lines at its joints only.
const jointed = (name) => name.split(/(?<=[-_/])/).map((part, place) => [place ? h("wbr") : null, part]);
const runName = (run) => h("span", {class: "run-name"}, marker(run), h("span", {}, jointed(runs[run].name)));

// A mean and its interval on a line from 0 to `top`.
function intervalBar(interval, top, run) {
  const place = (value) => `${(100 * Math.max(0, Math.min(1, value / top))).toFixed(2)}%`;
  const low = interval.low ?? interval.mean;
  const high = interval.high ?? interval.mean;
  return h("span", {
    class: `interval ${runClass(run)}`,
    "aria-hidden": "true",
    vars: {"--low": place(low), "--width": place(high - low), "--mean": place(interval.mean)},
  });
}

const SCALE_STEPS = [0.1, 0.2, 0.4, 0.6, 0.8, 1];
const scaleTop = (intervals) => {
  const most = Math.max(0, ...intervals.filter(Boolean).map((each) => each.high ?? each.mean));
  return SCALE_STEPS.find((step) => most <= step) ?? 1;
};

// Packed blocks, decoded when they are needed; the last few are kept.
const decoded = new Map();
const KEPT_BLOCKS = 40;

function block(name) {
  let found = decoded.get(name);
  if (found) decoded.delete(name);
  else found = unpack(at(name)?.textContent ?? "");
  decoded.set(name, found);
  if (decoded.size > KEPT_BLOCKS) decoded.delete(decoded.keys().next().value);
  return found;
}

async function unpack(packed) {
  if (!packed) throw new Error("a part of this file is missing: it was not written or copied to its end.");
  if (!("DecompressionStream" in window)) {
    throw new Error(
      "this browser cannot unpack the traces: it needs Chrome 123, Firefox 120, Safari 17.5 or newer.",
    );
  }
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// The item at a position of a list that was packed in pieces, and the passages that its piece names:
// number -> [id, title].
async function packedItem(name, starts, position) {
  let piece = starts.length - 1;
  while (starts[piece] > position) piece -= 1;
  const data = await block(`${name}-${piece}`);
  data.byNumber ??= new Map(data.passages.map(([place, id, title]) => [place, {id, title}]));
  return {item: data.items[position - starts[piece]], passages: data.byNumber};
}

// Choices that several parts of the page look at; `changed` calls those that asked to be told.
const state = {baseline: overview.baseline, measure: "f1"};
const listeners = [];
const whenChanged = (listener) => listeners.push(listener);
const change = (values) => {
  Object.assign(state, values);
  for (const listener of listeners) listener();
};

const option = (value, text, chosen) => h("option", {value, selected: chosen}, text);

// Hand a text to the browser as a file: nothing is sent anywhere.
function download(name, type, text) {
  const link = h("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name, hidden: true});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const downloadButton = (title, label, onclick) =>
  h(
    "button",
    {type: "button", class: "download", "aria-label": label, title: label, onclick},
    svg(
      "svg",
      {viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true"},
      svg("path", {d: "M8 2v8M4.5 7 8 10.5 11.5 7M3 13.5h10", fill: "none", stroke: "currentColor", "stroke-width": 1.5}),
    ),
    title,
  );
