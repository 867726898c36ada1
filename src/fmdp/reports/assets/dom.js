// Helpers for all parts of the page: elements, numbers, scales, markers. Text from the report enters
// the document only as text nodes and attributes, never as markup.
const report = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-GB");
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.01 || size === 0) return value.toPrecision(3);
  return value.toExponential(1);
}

function probability(value) {
  return value < 0.001 ? value.toExponential(1) : value.toFixed(3);
}

const isDark = () => document.documentElement.dataset.theme === "dark";

const looks = new Map(report.labels.map((look) => [look.label, look]));
const colourOf = (label) => (isDark() ? looks.get(label).dark : looks.get(label).colour);
const dashOf = (label, width) => looks.get(label).dash.map((part) => part * width).join(" ");

const redraws = [];
const redrawAll = () => redraws.forEach((redraw) => redraw());

// Markers of radius 1 around (0, 0), the same shapes as in the figures.
const POLYGONS = {
  s: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
  "^": [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]],
  v: [[0, 1.2], [1.15, -0.9], [-1.15, -0.9]],
  D: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]],
  P: [[-0.45, -1.3], [0.45, -1.3], [0.45, -0.45], [1.3, -0.45], [1.3, 0.45], [0.45, 0.45],
    [0.45, 1.3], [-0.45, 1.3], [-0.45, 0.45], [-1.3, 0.45], [-1.3, -0.45], [-0.45, -0.45]],
};
POLYGONS.X = POLYGONS.P.map(([x, y]) => [(x - y) * 0.707, (x + y) * 0.707]);
POLYGONS["*"] = Array.from({ length: 10 }, (_, k) => {
  const radius = k % 2 ? 0.6 : 1.45;
  return [radius * Math.sin((k * Math.PI) / 5), -radius * Math.cos((k * Math.PI) / 5)];
});

function markerPath(kind, x, y, r) {
  if (!(kind in POLYGONS)) return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`;
  return `M${POLYGONS[kind].map(([a, b]) => `${(x + a * r).toFixed(2)},${(y + b * r).toFixed(2)}`).join("L")}z`;
}

function swatch(label, width = 34) {
  const look = looks.get(label);
  const colour = colourOf(label);
  const picture = draw("svg", { width, height: 14, "aria-hidden": "true" });
  picture.append(
    draw("line", { x1: 1, x2: width - 1, y1: 7, y2: 7, stroke: colour, "stroke-width": 2.2, "stroke-dasharray": dashOf(label, 1.6) }),
    draw("path", { d: markerPath(look.marker, width / 2, 7, 3.6), fill: colour }),
  );
  return picture;
}

// A scale maps a value to a position; a logarithmic one maps values that are not positive to null.
function scale(kind, from, to, start, end) {
  const f = kind === "log" ? Math.log10 : (v) => v;
  const a = f(from), b = f(to) === f(from) ? f(from) + 1 : f(to);
  const at = (v) => (kind === "log" && v <= 0 ? null : start + ((f(v) - a) / (b - a)) * (end - start));
  return { kind, from, to, at };
}

function ticks(axis, wanted) {
  const found = [];
  if (axis.kind === "log") {
    const low = Math.ceil(Math.log10(axis.from) - 1e-9), high = Math.floor(Math.log10(axis.to) + 1e-9);
    const stride = Math.max(1, Math.ceil((high - low) / wanted));
    for (let k = low; k <= high; k += stride) found.push(10 ** k);
    if (found.length >= 2) return found;
    found.length = 0;
  }
  const rough = (axis.to - axis.from) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= rough);
  for (let v = Math.ceil(axis.from / step - 1e-9) * step; v <= axis.to + step * 1e-9; v += step) {
    if (axis.kind !== "log" || v > 0) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  }
  return found;
}

function tickText(value) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1e6) return value.toExponential(0).replace("e+", "e");
  if (Math.abs(value) >= 1) return Number(value.toPrecision(6)).toLocaleString("en-GB");
  return String(Number(value.toPrecision(3)));
}

// Draw axes with ticks, grid and titles into an empty svg.
function axes(svg, box, x, y, titles, wanted = [5, 5]) {
  const group = draw("g", { "aria-hidden": "true" });
  for (const value of ticks(x, wanted[0])) {
    const place = x.at(value).toFixed(1);
    group.append(draw("line", { class: "grid", x1: place, x2: place, y1: box.top, y2: box.bottom }));
    group.append(Object.assign(draw("text", { x: place, y: box.bottom + 17, "text-anchor": "middle" }), { textContent: tickText(value) }));
  }
  for (const value of ticks(y, wanted[1])) {
    const place = y.at(value).toFixed(1);
    group.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: place, y2: place }));
    group.append(Object.assign(draw("text", { x: box.left - 7, y: Number(place) + 4, "text-anchor": "end" }), { textContent: tickText(value) }));
  }
  group.append(draw("path", { class: "axis", fill: "none", d: `M${box.left},${box.top}V${box.bottom}H${box.right}` }));
  group.append(Object.assign(draw("text", { x: box.right, y: box.bottom + 34, "text-anchor": "end" }), { textContent: titles.x }));
  if (titles.y) group.append(Object.assign(draw("text", { x: 2, y: box.top - 9 }), { textContent: titles.y }));
  svg.append(group);
}

// Runs of consecutive points that have a position, as lists of indices.
function stretches(xs, ys) {
  const found = [];
  let open = false;
  xs.forEach((x, k) => {
    const there = x !== null && ys[k] !== null;
    if (there && !open) found.push([]);
    if (there) found.at(-1).push(k);
    open = there;
  });
  return found;
}

// A path with gaps at the points without a position.
const pathThrough = (xs, ys) => stretches(xs, ys).map((own) => `M${own.map((k) => `${xs[k].toFixed(1)},${ys[k].toFixed(1)}`).join("L")}`).join("");

// Redraw when the width of the box changes (and only then).
function onWidth(element, redraw) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.round(element.clientWidth);
    if (now && now !== width) { width = now; redraw(); }
  }).observe(element);
}
