// Curves: one panel per problem, learners that can be hidden, logarithmic and linear axes, and the
// values under the pointer or, with the arrow keys, under the cursor.
const view = { measure: report.opens, line: "median", x: "log", y: "log", bands: true, off: new Set(report.labels.filter(({ shown }) => !shown).map(({ label }) => label)) };

// The line and band of a cell: the median with its quartiles, or the mean with its 95 % interval.
function curveOf(cell) {
  const own = cell.curves[view.measure];
  return view.line === "mean" ? { middle: own.mean, low: own.meanLow, high: own.meanHigh } : { middle: own.median, low: own.low, high: own.high };
}

const measureOf = (name) => report.measures.find(({ key }) => key === name);

function radios(id, apply) {
  byId(id).addEventListener("change", (event) => { apply(event.target.value); redrawAll(); });
}

function startControls() {
  report.measures.forEach(({ key, name }) => {
    const input = make("input", { type: "radio", name: "measure", value: key });
    input.checked = key === report.opens;
    byId("measure").append(make("label", {}, input, make("span", {}, name[0].toUpperCase() + name.slice(1))));
  });
  radios("measure", (value) => { view.measure = value; });
  radios("line", (value) => { view.line = value; });
  radios("x-axis", (value) => { view.x = value; });
  radios("y-axis", (value) => { view.y = value; });
  byId("bands").addEventListener("change", (event) => { view.bands = event.target.checked; redrawAll(); });
  const buttons = report.labels.map(({ label }) => {
    const button = make("button", { type: "button", "data-label": label });
    button.addEventListener("click", () => {
      if (!view.off.delete(label)) view.off.add(label);
      redrawAll();
    });
    return button;
  });
  const all = make("button", { type: "button", class: "quiet" }, "Show all");
  all.addEventListener("click", () => { view.off.clear(); redrawAll(); });
  const none = make("button", { type: "button", class: "quiet" }, "Hide all");
  none.addEventListener("click", () => { report.labels.forEach(({ label }) => view.off.add(label)); redrawAll(); });
  byId("legend").append(...buttons, all, none);
  redraws.push(() => {
    buttons.forEach((button) => {
      button.setAttribute("aria-pressed", String(!view.off.has(button.dataset.label)));
      button.replaceChildren(swatch(button.dataset.label), button.dataset.label);
    });
    const { caption } = measureOf(view.measure);
    byId("curve-caption").textContent = `${caption} ${report.lines[view.line]}` +
      (view.y === "log" ? ` On the logarithmic axis a line and its band are interrupted where the ${view.line} is not positive, and the optimal policy, whose regret is zero up to luck, is left out.` : "");
  });
}

function startPanel(problem) {
  const svg = draw("svg", { tabindex: 0, role: "img", "aria-label": `Curves on ${problem.name}; left and right arrow keys read values` });
  const tip = make("div", { class: "tip", hidden: "" });
  const about = problem.gain === null ? "" : `gain ${problem.gain.toPrecision(6)}${problem.gainKind === "exact" ? "" : " (upper bound)"}`;
  const figure = make("figure", { class: "card panel", "data-problem": problem.name },
    make("figcaption", {}, problem.name, make("small", {}, about)), svg, tip);
  byId("panels").append(figure);
  let geometry = null;
  let cursor = null;

  function redraw() {
    const width = svg.clientWidth || 420, height = Math.round(Math.min(330, Math.max(230, width * 0.62)));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.replaceChildren();
    const box = { left: 52, right: width - 24, top: 24, bottom: height - 40 };
    const cells = problem.cells.filter((cell) => cell.curves[view.measure] && !view.off.has(cell.label) && hasPlace(cell));
    const { x, y } = ranges(cells, box);
    axes(svg, box, x, y, { x: "steps", y: measureOf(view.measure).axis }, [width < 400 ? 4 : 6, 5]);
    const clip = `clip-${report.problems.indexOf(problem)}`;
    svg.append(draw("defs", {}, draw("clipPath", { id: clip }, draw("rect", { x: box.left, y: box.top - 4, width: box.right - box.left + 4, height: box.bottom - box.top + 4 }))));
    const bands = draw("g", { "clip-path": `url(#${clip})` }), lines = draw("g", { "clip-path": `url(#${clip})` });
    cells.forEach((cell, place) => drawCell(cell, place, cells.length, x, y, box, bands, lines));
    svg.append(bands, lines);
    if (!cells.length) svg.append(Object.assign(draw("text", { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, "text-anchor": "middle" }), { textContent: "No learner is shown" }));
    const overlay = draw("g", {});
    svg.append(overlay);
    geometry = { box, x, y, cells, overlay, times: [...new Set(cells.flatMap((cell) => cell.t))].sort((a, b) => a - b) };
    if (cursor !== null) point(cursor, false); else tip.hidden = true;
  }

  function point(t, speak) {
    const { box, x, y, cells, overlay } = geometry;
    cursor = t;
    const place = x.at(t);
    if (place === null) return leave();
    overlay.replaceChildren(draw("line", { class: "cross", x1: place, x2: place, y1: box.top, y2: box.bottom }));
    const rows = cells.map((cell) => {
      const k = cell.t.indexOf(t), curve = curveOf(cell);
      return k < 0 ? null : { label: cell.label, middle: curve.middle[k], low: curve.low[k], high: curve.high[k] };
    }).filter(Boolean).sort((a, b) => b.middle - a.middle);
    for (const row of rows) {
      const at = y.at(row.middle);
      if (at !== null && at <= box.bottom + 1) overlay.append(draw("circle", { cx: place, cy: at, r: 4, fill: colourOf(row.label), stroke: "var(--card)", "stroke-width": 1.5 }));
    }
    const body = make("table", {}, ...rows.map((row) =>
      make("tr", {}, make("td", {}, swatch(row.label, 22), row.label), make("td", {}, number(row.middle)), make("td", {}, `${number(row.low)} to ${number(row.high)}`))));
    tip.replaceChildren(make("strong", {}, `t = ${t.toLocaleString("en-GB")}`), body);
    tip.hidden = rows.length === 0;
    const left = svg.offsetLeft + place, half = figure.clientWidth / 2;
    tip.style.top = `${svg.offsetTop + box.top}px`;
    tip.style.left = left < half ? `${left + 12}px` : "auto";
    tip.style.right = left < half ? "auto" : `${figure.clientWidth - left + 12}px`;
    if (speak) byId("spoken").textContent = `${problem.name}, step ${t}: ` + rows.map((row) => `${row.label} ${number(row.middle)}`).join(", ");
    return undefined;
  }

  function leave() {
    cursor = null;
    tip.hidden = true;
    geometry.overlay.replaceChildren();
  }

  const follow = (event) => {
    const place = event.clientX - svg.getBoundingClientRect().left;
    const near = geometry.times.filter((t) => geometry.x.at(t) !== null)
      .reduce((best, t) => (best === null || Math.abs(geometry.x.at(t) - place) < Math.abs(geometry.x.at(best) - place) ? t : best), null);
    if (near !== null) point(near, false);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  // After a touch the values stay until the next touch.
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const { times } = geometry, k = times.indexOf(cursor), last = times.length - 1;
    const to = { ArrowRight: Math.min(k + 1, last), ArrowLeft: k < 0 ? last : Math.max(k - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") leave();
    if (to === undefined || last < 0) return;
    event.preventDefault();
    point(times[to], true);
  });
  redraws.push(redraw);
  onWidth(svg, redraw);
}

// The upper end is not drawn on a logarithmic axis: its regret is zero up to luck.
const hasPlace = (cell) => view.y !== "log" || looks.get(cell.label).role !== "upper";

// Random actions may leave a linear panel, since they would flatten the other curves.
function ranges(drawn, box) {
  const last = Math.max(1, ...drawn.map((cell) => cell.t.at(-1)));
  const learners = drawn.filter((cell) => looks.get(cell.label).role !== "lower");
  const cells = view.y === "linear" && learners.length ? learners : drawn;
  const values = cells.flatMap((cell) => curveOf(cell).middle);
  const highs = cells.flatMap((cell) => curveOf(cell)[view.bands ? "high" : "middle"]);
  const x = scale(view.x, view.x === "log" ? 1 : 0, view.x === "log" ? Math.max(last, 10) : last, box.left, box.right);
  if (view.y === "linear") {
    const lows = cells.flatMap((cell) => curveOf(cell)[view.bands ? "low" : "middle"]);
    return { x, y: scale("linear", Math.min(0, ...lows), Math.max(1e-9, ...highs) * 1.04 || 1, box.bottom, box.top) };
  }
  const positive = values.filter((v) => v > 0);
  const top = Math.max(...positive, ...highs.filter((v) => v > 0), -Infinity);
  if (!Number.isFinite(top)) return { x, y: scale("log", 0.1, 10, box.bottom, box.top) };
  // At most four decades, since the first steps would otherwise take most of the panel.
  const low = Math.max(Math.min(...positive), top * 1e-4) * 0.8;
  return { x, y: scale("log", low, Math.max(top * 1.25, low * 10), box.bottom, box.top) };
}

function drawCell(cell, place, of, x, y, box, bands, lines) {
  const curve = curveOf(cell), colour = colourOf(cell.label), look = looks.get(cell.label);
  const xs = cell.t.map(x.at);
  const within = (value) => (value === null ? null : Math.max(-1e4, Math.min(1e4, value)));
  const middle = curve.middle.map((v) => within(y.at(v)));
  if (view.bands && !["upper", "lower"].includes(look.role)) {
    // The band is interrupted where the line is.
    const d = stretches(xs, middle).map((own) => {
      const up = own.map((k) => `${xs[k].toFixed(1)},${(within(y.at(curve.high[k])) ?? middle[k]).toFixed(1)}`);
      const down = own.map((k) => `${xs[k].toFixed(1)},${(within(y.at(curve.low[k])) ?? box.bottom + 9).toFixed(1)}`).reverse();
      return `M${up.join("L")}L${down.join("L")}z`;
    }).join("");
    if (d) bands.append(draw("path", { d, fill: colour, "fill-opacity": isDark() ? 0.2 : 0.14, "data-band": cell.label }));
  }
  const group = draw("g", { "data-curve": cell.label });
  group.append(draw("path", { d: pathThrough(xs, middle), fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dashOf(cell.label, 1.6) }));
  // A few markers, spread evenly on the axis and staggered from learner to learner.
  for (let k = 0; k < 6; k += 1) {
    const wanted = box.left + ((k + (place + 0.5) / of) / 6) * (box.right - box.left);
    const near = xs.reduce((best, at, i) => (at !== null && middle[i] !== null && (best < 0 || Math.abs(at - wanted) < Math.abs(xs[best] - wanted)) ? i : best), -1);
    if (near >= 0) group.append(draw("path", { d: markerPath(look.marker, xs[near], middle[near], 3.6), fill: colour, stroke: "var(--card)", "stroke-width": 1 }));
  }
  lines.append(group);
}
