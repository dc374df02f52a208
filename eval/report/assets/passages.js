// Passages in lists and chips: by title, gold ones marked, with their texts if the report has them.

const CHIPS = 3;

// Passages of one run's trace: names, which of them are gold if any can be, and their texts if the report has
// them.
function passageView(passages, gold, hasGold = true) {
  return {
    passages,
    gold,
    hasGold,
    title: (place) => passages.get(place)?.title || passages.get(place)?.id || `passage ${place}`,
  };
}

function drawHits(hits, view) {
  if (!hits.length) return h("p", {class: "nothing"}, "nothing was found");
  const goldRanks = hits.map(([place], rank) => (view.gold.has(place) ? rank + 1 : 0)).filter(Boolean);
  const chips = hits
    .map(([place], rank) => ({place, rank}))
    .filter(({place, rank}) => rank < CHIPS || view.gold.has(place));
  const rest = hits.length - chips.length;
  const list = h("ol", {class: "hits"});
  const drawList = () => {
    if (!list.children.length)
      replace(
        list,
        hits.map(([place, score]) => h("li", {}, passageItem(place, score, view))),
      );
  };
  return h(
    "details",
    {class: "hits-fold", ontoggle: drawList},
    h(
      "summary",
      {},
      h(
        "span",
        {class: "hit-count"},
        counted(hits.length, "passage"),
        view.hasGold
          ? h(
              "span",
              {class: goldRanks.length ? "gold-ranks" : "muted"},
              goldRanks.length ? ` \u00b7 gold at ${goldRanks.join(", ")}` : " \u00b7 no gold",
            )
          : null,
      ),
      h(
        "span",
        {class: "chips"},
        chips.map(({place}) => chip(place, view)),
        rest ? h("span", {class: "muted"}, `and ${rest} more`) : null,
      ),
    ),
    list,
  );
}

const chip = (place, view) =>
  h(
    "span",
    {class: view.gold.has(place) ? "chip gold" : "chip"},
    view.gold.has(place) ? h("span", {"aria-label": "gold passage"}, "\u2605 ") : null,
    view.title(place),
  );

function passageItem(place, score, view, named = true) {
  const id = view.passages.get(place)?.id ?? "";
  const line = [
    chip(place, view),
    !named || view.title(place) === id ? null : h("span", {class: "passage-id"}, id),
    score === null ? null : h("span", {class: "cost"}, Number(score).toPrecision(4)),
  ];
  if (!overview.texts_per_block) return h("div", {class: "passage"}, line);
  const text = h("p", {class: "passage-text"}, "Unpacking\u2026");
  return h(
    "details",
    {class: "passage", ontoggle: () => showText(place, text)},
    h("summary", {}, line),
    text,
  );
}

// Title and text of a passage, null if the index did not have it.
async function textOf(place) {
  const size = overview.texts_per_block;
  return (await block(`texts-${Math.floor(place / size)}`))[place % size];
}

// Traces name what searches found; a gold passage that no search found has its title from the index, if
// there was one.
async function nameGold({item, passages}) {
  const nameless = (item.supporting ?? [])
    .map((place) => [place, passages.get(place)])
    .filter(([, passage]) => !passage.title);
  for (const [place, passage] of overview.texts_per_block ? nameless : [])
    passage.title = (await textOf(place))?.[0] ?? "";
}

async function showText(place, element) {
  const found = await textOf(place);
  replace(element, found ? found[1] : "The index that this report was made with does not have this passage.");
}
