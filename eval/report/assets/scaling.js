// Mean tokens per question, on a log axis, against EM or F1 with intervals; the frontier joins the runs
// that no other beats, a dotted line what the best of their candidates would have scored.

const LABEL_LETTERS = 28;
const PLOT = {top: 34, right: 28, bottom: 52, left: 52};

function ticks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const lead of [1, 2, 5]) {
      const tick = lead * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
    }
  }
  return found;
}

// Scales that hold every point with some air around it. What spends no tokens has no place on a log scale: it
// stands left of it, above a tick of its own.
const ZERO_ROOM = 56;

function scales(width, height) {
  const spent = runs.map((run) => run.summary.tokens);
  const tokens = spent.filter(Boolean);
  if (!tokens.length) tokens.push(10);
  const room = spent.every(Boolean) ? 0 : ZERO_ROOM;
  const air = Math.max(1.25, (Math.max(...tokens) / Math.min(...tokens)) ** 0.09);
  const low = Math.min(...tokens) / air;
  const high = Math.max(...tokens) * air;
  const best = oraclePoints().map((point) => ({mean: point.score, low: point.score, high: point.score}));
  const top = scaleTop([...runs.map((run) => run.summary[state.measure]), ...best]);
  const inner = {width: width - PLOT.left - PLOT.right, height: height - PLOT.top - PLOT.bottom};
  const along = (value) => ((inner.width - room) * Math.log(value / low)) / Math.log(high / low);
  return {
    low,
    high,
    top,
    inner,
    from_zero: room > 0,
    x: (value) => PLOT.left + (value ? room + along(value) : 20),
    y: (value) => PLOT.top + inner.height * (1 - value / top),
  };
}

function axes(scale, width, height) {
  const parts = [];
  const base = PLOT.top + scale.inner.height;
  for (let step = 0; step <= 4; step += 1) {
    const value = (scale.top * step) / 4;
    const y = scale.y(value);
    parts.push(
      svg("line", {class: step ? "grid" : "axis", x1: PLOT.left, x2: width - PLOT.right, y1: y, y2: y}),
      svg(
        "text",
        {class: "tick", x: PLOT.left - 10, y: y + 4, "text-anchor": "end"},
        (100 * value).toFixed(scale.top < 0.4 ? 1 : 0),
      ),
    );
  }
  const all = ticks(scale.low, scale.high);
  const room = Math.max(2, Math.floor(scale.inner.width / 64));
  const every = Math.ceil(all.length / room);
  if (scale.from_zero) {
    parts.push(
      svg("line", {class: "axis", x1: scale.x(0), x2: scale.x(0), y1: base, y2: base + 5}),
      svg("text", {class: "tick", x: scale.x(0), y: base + 20, "text-anchor": "middle"}, "0"),
    );
  }
  all.forEach((tick, place) => {
    parts.push(svg("line", {class: "axis", x1: scale.x(tick), x2: scale.x(tick), y1: base, y2: base + 5}));
    if (place % every === 0)
      parts.push(
        svg("text", {class: "tick", x: scale.x(tick), y: base + 20, "text-anchor": "middle"}, compact(tick)),
      );
  });
  parts.push(
    svg(
      "text",
      {class: "axis-title", x: PLOT.left + scale.inner.width / 2, y: height - 8, "text-anchor": "middle"},
      "tokens per question (log scale)",
    ),
    svg("text", {class: "axis-title", x: 0, y: 12}, `${measureTitle[state.measure]}, percent`),
  );
  return parts;
}

// The frontier as steps: between two runs, more tokens buy nothing until the next one is reached.
function frontierPath(scale) {
  const places = overview.frontier[state.measure];
  if (places.length < 2) return null;
  const steps = places.map((run, place) => {
    const {tokens} = runs[run].summary;
    const y = scale.y(runs[run].summary[state.measure].mean);
    return place ? `H${scale.x(tokens)}V${y}` : `M${scale.x(tokens)} ${y}`;
  });
  return svg("path", {class: "frontier", d: steps.join("")});
}

// The best that an oracle would choose for so many tokens or fewer, by rising tokens.
function oraclePoints() {
  const known = runs
    .filter((run) => state.measure in run.oracle)
    .map((run) => ({tokens: run.summary.tokens, score: run.oracle[state.measure]}))
    .sort((a, b) => a.tokens - b.tokens || b.score - a.score);
  let best = -1;
  return known.filter((point) => point.score > best && ((best = point.score), true));
}

function oraclePath(scale) {
  const points = oraclePoints().map((point) => `${scale.x(point.tokens)} ${scale.y(point.score)}`);
  if (!points.length) return null;
  const dots = points.map((point) => {
    const [x, y] = point.split(" ");
    return svg("circle", {class: "oracle-point", cx: x, cy: y, r: 2.5});
  });
  return svg("g", {class: "oracle"}, svg("path", {d: `M${points.join("L")}`}), dots);
}

function describePoint(run) {
  const {summary} = runs[run];
  const interval = summary[state.measure];
  const beaten = !overview.frontier[state.measure].includes(run);
  return [
    ["", runs[run].name],
    [measureTitle[state.measure], `${percent(interval.mean)} ${range(interval)}`],
    ...(state.measure in runs[run].oracle
      ? [["oracle", `${percent(runs[run].oracle[state.measure])} with the best of its candidates`]]
      : []),
    ["tokens", `${number(summary.tokens)} per question, ${number(summary.computed_tokens)} computed`],
    [
      "frontier",
      beaten
        ? "no: another run does as well with fewer tokens"
        : "yes: no run does as well with fewer tokens",
    ],
  ];
}

function point(run, scale) {
  const {summary} = runs[run];
  const interval = summary[state.measure];
  const x = scale.x(summary.tokens);
  const y = scale.y(interval.mean);
  const bar =
    interval.low === null
      ? []
      : [
          svg("line", {class: "error", x1: x, x2: x, y1: scale.y(interval.low), y2: scale.y(interval.high)}),
          ...[interval.low, interval.high].map((edge) =>
            svg("line", {class: "error", x1: x - 4, x2: x + 4, y1: scale.y(edge), y2: scale.y(edge)}),
          ),
        ];
  const label = describePoint(run)
    .map(([name, text]) => `${name} ${text}`.trim())
    .join("; ");
  return svg(
    "g",
    {
      class: `point ${runClass(run)}`,
      tabindex: 0,
      role: "img",
      "aria-label": label,
      "data-run": run,
      onpointerenter: () => showTip(run, x, y),
      onpointerleave: hideTip,
      onfocus: () => showTip(run, x, y),
      onblur: hideTip,
    },
    bar,
    svg("circle", {class: "halo", cx: x, cy: y, r: 14}),
    shape(run, 6.5, {transform: `translate(${x} ${y})`}),
  );
}

// Names without what all of them begin with, and cut to what a plot has room for.
function shortNames() {
  const names = runs.map((run) => run.name);
  let shared = 0;
  while (names.length > 1 && names.every((name) => name[shared] && name[shared] === names[0][shared]))
    shared += 1;
  const joint = Math.max(...["-", "_", "/", "="].map((sign) => names[0].lastIndexOf(sign, shared - 1))) + 1;
  const rest = names.map((name) => name.slice(shared ? joint : 0));
  return rest.map((name) =>
    name.length > LABEL_LETTERS ? `${name.slice(0, LABEL_LETTERS - 1)}\u2026` : name,
  );
}

// Names beside the points: right of them, or left where there is no room; none that would cover another one.
function labels(scale, width) {
  const taken = runs.map((run) => {
    const x = scale.x(run.summary.tokens);
    const y = scale.y(run.summary[state.measure].mean);
    return {left: x - 7, right: x + 7, top: y - 7, bottom: y + 7};
  });
  const names = shortNames();
  const front = overview.frontier[state.measure];
  const order = [...front, ...runs.map((_, run) => run).filter((run) => !front.includes(run))];
  return order.map((run) => {
    const x = scale.x(runs[run].summary.tokens);
    const y = scale.y(runs[run].summary[state.measure].mean);
    const length = 7 * names[run].length;
    const places = [
      [x + 10, y - 8, "start"],
      [x - 10, y - 8, "end"],
      [x + 10, y + 17, "start"],
      [x - 10, y + 17, "end"],
      [x + 12, y - 22, "start"],
      [x + 12, y + 30, "start"],
      [x - 12, y - 22, "end"],
      [x - 12, y + 30, "end"],
      [x + 12, y - 36, "start"],
      [x + 12, y + 44, "start"],
    ];
    for (const [left, base, anchor] of places) {
      const box = {
        left: anchor === "start" ? left : left - length,
        right: anchor === "start" ? left + length : left,
        top: base - 11,
        bottom: base + 3,
      };
      const free = taken.every(
        (other) =>
          box.right < other.left ||
          box.left > other.right ||
          box.bottom < other.top ||
          box.top > other.bottom,
      );
      if (free && box.left > PLOT.left && box.right < width - 4) {
        taken.push(box);
        return svg(
          "text",
          {class: "point-name", x: left, y: base, "text-anchor": anchor, "aria-hidden": "true"},
          names[run],
        );
      }
    }
    return null;
  });
}

function showTip(run, x, y) {
  const tip = at("tip");
  const frame = at("plot").querySelector("svg").getBoundingClientRect();
  replace(
    tip,
    describePoint(run).map(([name, text]) =>
      h(
        "div",
        {class: name ? "tip-row" : "tip-head"},
        name ? h("span", {class: "muted"}, name) : marker(run),
        h("span", {}, text),
      ),
    ),
  );
  tip.hidden = false;
  const left = Math.min(frame.left + x + 16, document.documentElement.clientWidth - tip.offsetWidth - 12);
  tip.style.setProperty("left", `${Math.max(12, left) + window.scrollX}px`);
  tip.style.setProperty("top", `${Math.max(8, frame.top + y - tip.offsetHeight - 14) + window.scrollY}px`);
}

function hideTip() {
  at("tip").hidden = true;
}

let plotted = 0;

function drawPlot(outer = at("plot").clientWidth) {
  hideTip();
  const figure = at("plot");
  const style = getComputedStyle(figure);
  const width = Math.max(
    280,
    outer - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight),
  );
  plotted = figure.clientWidth;
  const height = width < 560 ? 300 : 400;
  const scale = scales(width, height);
  const focused = document.activeElement?.getAttribute?.("data-run");
  replace(
    figure,
    svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        role: "group",
        "aria-label": "Accuracy against tokens: one point per run",
      },
      axes(scale, width, height),
      frontierPath(scale),
      oraclePath(scale),
      labels(scale, width),
      runs.map((_, run) => point(run, scale)),
    ),
    h(
      "figcaption",
      {class: "note"},
      "Bars: 95% intervals. ",
      overview.frontier[state.measure].length > 1
        ? "Line: the best that can be had for so many tokens or fewer. "
        : "",
      oraclePoints().length ? "Dotted: what the best of a run's candidates would score. " : "",
      "Hover over a point, or move to it with the Tab key, for its figures.",
    ),
  );
  if (focused) figure.querySelector(`[data-run="${focused}"]`)?.focus();
}

function drawMeasures() {
  replace(
    at("measure"),
    Object.entries(measureTitle).map(([measure, title]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(state.measure === measure),
          onclick: () => {
            change({measure});
            at("measure").querySelector("[aria-pressed=true]").focus();
          },
        },
        title,
      ),
    ),
  );
}

// The plot as a file: what style sheets say of its parts is written into them, in the colours of the light theme.
const DRAWN = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size",
  "font-weight", "paint-order",
];

function plotFile() {
  const copy = at("plot").querySelector("svg").cloneNode(true);
  for (const halo of copy.querySelectorAll(".halo")) halo.remove();
  const frame = h("div", {vars: {"color-scheme": "light", position: "absolute", visibility: "hidden"}}, copy);
  at("plot").append(frame);
  for (const part of copy.querySelectorAll("*")) {
    const style = getComputedStyle(part);
    for (const name of DRAWN) part.setAttribute(name, style.getPropertyValue(name));
  }
  frame.remove();
  for (const part of [copy, ...copy.querySelectorAll("*")])
    for (const name of ["class", "tabindex", "role", "aria-label", "aria-hidden", "data-run"]) part.removeAttribute(name);
  copy.prepend(svg("rect", {width: "100%", height: "100%", fill: "#fff"}));
  return new XMLSerializer().serializeToString(copy);
}

function drawScaling() {
  drawMeasures();
  const drawable = runs.every((run) => run.summary[state.measure]);
  const name = `${state.measure}-against-tokens.svg`;
  replace(
    at("chart-download"),
    drawable
      ? downloadButton("SVG", "Download the chart as SVG", () => download(name, "image/svg+xml", plotFile()))
      : null,
  );
  if (drawable) drawPlot();
  else
    replace(
      at("plot"),
      h("p", {class: "note"}, "These questions have no gold answers to measure accuracy by."),
    );
}

function watchPlot() {
  new ResizeObserver(() => {
    if (plotted && at("plot").clientWidth !== plotted) drawPlot();
  }).observe(at("plot"));
}
