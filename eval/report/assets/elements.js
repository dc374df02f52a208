// What every part of a page is made of: elements, and numbers as people read them. Text only ever becomes text
// nodes, never markup.

const at = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars")
      for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false && child !== "") element.append(child);
  }
  return element;
}

// h("p", {class: "note"}, "text", element, null, ["more"]): attributes that are null or false are left out.
const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const replace = (element, ...children) => {
  element.replaceChildren();
  return fill(element, {}, children);
};

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const oneDigit = new Intl.NumberFormat("en", {minimumFractionDigits: 1, maximumFractionDigits: 1});
const number = (value) => whole.format(value);
const decimal = (value) => oneDigit.format(value);
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
const seconds = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1)) + " s";
const compact = (value) =>
  value < 1000
    ? number(value)
    : value < 1e6
      ? +(value / 1000).toPrecision(3) + "k"
      : +(value / 1e6).toPrecision(3) + "M";
