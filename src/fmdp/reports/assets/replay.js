// The replay: one recorded run on the network of its problem. At step t the nodes show the state s_t,
// the ring the action a_t, and the numbers the first t steps.
const RADIUS = 27, UNIT = 112, FRAME = 8;
const TWO = { light: ["#B34700", "#5FB5E8"], dark: ["#D4692A", "#6FC0EE"] };
const ICONS = {
  play: "M6 4l14 8-14 8z", pause: "M6 4h4v16H6zM14 4h4v16h-4z",
  back: "M5 4h3v16H5zM20 4v16L9 12z", forward: "M16 4h3v16h-3zM4 4v16l11-8z",
};

// Two values: vermillion and sky blue, "down" and "up". More: light to dark along one ramp.
function valueColour(value, size) {
  if (size <= 2) return TWO[isDark() ? "dark" : "light"][value];
  const share = value / (size - 1);
  const stops = [[214, 236, 248], [120, 190, 228], [44, 123, 182], [104, 56, 148]];
  const at = share * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
  const mix = stops[k].map((channel, i) => Math.round(channel + (stops[k + 1][i] - channel) * (at - k)));
  return `rgb(${mix.join(",")})`;
}

function inkOn(colour) {
  const [r, g, b] = colour.startsWith("#") ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)) : colour.match(/\d+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
}

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  return new { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array }[packed.type](buffer);
}

function icon(name) {
  return draw("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, draw("path", { d: ICONS[name] }));
}

const player = { problem: null, cell: null, run: null, t: 0, playing: false, last: 0, ahead: 0, nodes: [], bars: [], asked: 0, places: [], arrows: null, learned: null };

function startReplay() {
  byId("back").append(icon("back"));
  byId("forward").append(icon("forward"));
  byId("replay-problem").append(...report.problems.map(({ name }, k) => make("option", { value: k }, name)));
  byId("replay-problem").addEventListener("change", () => chooseProblem(Number(byId("replay-problem").value)));
  byId("replay-cell").addEventListener("change", () => chooseCell(Number(byId("replay-cell").value)));
  byId("scrub").addEventListener("input", () => { pause(); show(Number(byId("scrub").value)); });
  byId("strip").addEventListener("click", (event) => {
    pause();
    show(player.t + Math.round((event.offsetX - byId("strip").clientWidth / 2) / FRAME));
  });
  byId("back").addEventListener("click", () => { pause(); show(player.t - 1); });
  byId("forward").addEventListener("click", () => { pause(); show(player.t + 1); });
  byId("play").addEventListener("click", () => (player.playing ? pause() : play()));
  byId("replay").addEventListener("keydown", (event) => {
    if (event.key === " " && !event.target.closest("button, select, input")) { event.preventDefault(); byId("play").click(); }
  });
  onWidth(byId("replay-chart"), () => { drawChart(); drawStrip(); });
  redraws.push(() => { if (player.problem) { drawNetwork(); show(player.t); drawChart(); } });
  pause();
  chooseProblem(0);
}

function chooseProblem(k) {
  player.problem = report.problems[k];
  byId("replay-cell").replaceChildren(...player.problem.cells.map((cell, i) =>
    make("option", { value: i, ...(cell.replay ? {} : { disabled: "" }) }, cell.replay ? cell.label : `${cell.label} (no recording)`)));
  drawNetwork();
  const first = player.problem.cells.findIndex((cell) => cell.replay);
  byId("replay-cell").value = String(Math.max(first, 0));
  chooseCell(first);
}

async function chooseCell(k) {
  pause();
  const asked = (player.asked += 1);
  player.cell = player.problem.cells[k] ?? null;
  player.run = null;
  const kept = player.cell?.replay;
  byId("replay").removeAttribute("data-ready");
  for (const id of ["play", "back", "forward", "scrub"]) byId(id).disabled = !kept;
  if (!kept) {
    byId("replay-facts").textContent = "No run of this problem was recorded.";
    byId("scrub").max = "0";
    show(0);
    drawChart();
    return;
  }
  if (typeof DecompressionStream === "undefined") {
    byId("replay-facts").textContent = "This browser cannot unpack the recording (it has no DecompressionStream).";
    return;
  }
  const [states, actions, rewards] = await Promise.all([kept.states, kept.actions, kept.rewards].map(unpack));
  if (asked !== player.asked) return; // another cell was chosen in the meantime
  const regret = new Float64Array(kept.steps + 1);
  for (let t = 0; t < kept.steps; t += 1) regret[t + 1] = regret[t] + kept.gain - rewards[t];
  player.run = { ...kept, states, actions, rewards, regret };
  byId("replay-facts").textContent = `${player.problem.size}; seed ${kept.seed}, ` + (kept.steps < kept.of
    ? `the first ${kept.steps.toLocaleString("en-GB")} of ${kept.of.toLocaleString("en-GB")} steps (the store has all)`
    : `${kept.steps.toLocaleString("en-GB")} steps`)
    + (kept.edges ? "; arrows are as strong as the learner is sure of them" : "");
  byId("scrub").max = String(kept.steps);
  drawFactors();
  drawChart();
  show(0);
  byId("replay").setAttribute("data-ready", "true");
}

function play() {
  if (!player.run) return;
  if (player.t >= player.run.steps) show(0);
  player.playing = true;
  player.last = performance.now();
  player.ahead = 0;
  byId("play").replaceChildren(icon("pause"));
  byId("play").setAttribute("aria-label", "Pause");
  requestAnimationFrame(tick);
}

function pause() {
  player.playing = false;
  byId("play").replaceChildren(icon("play"));
  byId("play").setAttribute("aria-label", "Play");
}

function tick(now) {
  if (!player.playing) return;
  player.ahead += ((now - player.last) / 1000) * Number(byId("speed").value);
  player.last = now;
  const steps = Math.floor(player.ahead);
  if (steps > 0) { player.ahead -= steps; show(player.t + steps); }
  if (player.t >= player.run.steps) pause(); else requestAnimationFrame(tick);
}

function drawNetwork() {
  const { network, variables } = player.problem, svg = byId("network");
  const xs = network.nodes.map((node) => node.x * UNIT), ys = network.nodes.map((node) => node.y * UNIT);
  const pad = RADIUS + 20, left = Math.min(...xs) - pad - 14, top = Math.min(...ys) - pad;
  const width = Math.max(...xs) - left + pad + 14, height = Math.max(...ys) - top + pad + 18;
  // Drawings of few nodes are not enlarged to fill the card.
  const wide = Math.max(width, Math.min(430, svg.clientWidth || 430)), high = Math.max(height, wide * 0.62);
  svg.setAttribute("viewBox", `${left - (wide - width) / 2} ${top - (high - height) / 2} ${wide} ${high}`);
  svg.classList.toggle("dense", wide > 900); // words would be too small to read
  svg.replaceChildren();
  player.places = network.nodes.map((_, k) => [xs[k], ys[k]]);
  player.arrows = draw("g", { id: "arrows" });
  player.learned = null;
  player.arrows.append(...network.arrows.flatMap(([a, b, both]) => arrow(a, b, both)));
  svg.append(player.arrows);
  player.nodes = network.nodes.map((node, k) => {
    const group = draw("g", { transform: `translate(${xs[k]} ${ys[k]})`, "data-node": node.label });
    const sectors = node.variables.map((_, i) => {
      const share = node.variables.length;
      const d = share === 1 ? `M${-RADIUS},0a${RADIUS},${RADIUS} 0 1,0 ${2 * RADIUS},0a${RADIUS},${RADIUS} 0 1,0 ${-2 * RADIUS},0z` : sector(i / share, (i + 1) / share);
      return draw("path", { d, stroke: "var(--card)", "stroke-width": share === 1 ? 0 : 1.5 });
    });
    const title = draw("title", {});
    const arc = draw("path", { class: "arc" });
    const name = Object.assign(draw("text", { class: "name", y: 5 }), { textContent: node.label.length > 6 ? `${node.label.slice(0, 5)}…` : node.label });
    const value = draw("text", { class: "value", y: RADIUS + 27 });
    group.append(title, ...sectors, draw("circle", { class: "arc-back", r: RADIUS + 4 }), arc, draw("circle", { class: "ring", r: RADIUS + 10 }), name, value);
    svg.append(group);
    return { group, sectors, title, arc, name, value, variables: node.variables };
  });
  player.nodeOf = [];
  network.nodes.forEach((node, k) => node.variables.forEach((i) => { player.nodeOf[i] = k; }));
  // One key for variables with the same values: "status: good, fail, dead".
  const kinds = new Map();
  for (const { name, values } of variables) if (values.length <= 8 && !kinds.has(values.join("\n"))) kinds.set(values.join("\n"), { name: name.replace(/_?\d+$/, ""), values });
  const key = [...kinds.values()].slice(0, 4).flatMap(({ name, values }) => values.map((value, i) => {
    const dot = draw("svg", { width: 14, height: 14, "aria-hidden": "true" }, draw("circle", { cx: 7, cy: 7, r: 6.5, fill: valueColour(i, values.length) }));
    return make("span", {}, ...(kinds.size > 1 && i === 0 && name ? [`${name}:`] : []), dot, value);
  }));
  const ring = draw("svg", { width: 16, height: 16, "aria-hidden": "true" }, draw("circle", { cx: 8, cy: 8, r: 5.5, fill: "none", stroke: "var(--ring)", "stroke-width": 3 }));
  const arc = draw("svg", { width: 16, height: 16, "aria-hidden": "true" }, draw("path", { d: "M8,2.5a5.5,5.5 0 1,1 -5.5,5.5", fill: "none", stroke: "var(--arc)", "stroke-width": 2.5 }));
  byId("network-key").replaceChildren(...key, make("span", {}, ring, "acted on"), make("span", {}, arc, "uncertainty left"));
}

// An arrow from node a to node b, or in both directions.
function arrow(a, b, both) {
  const [[ax, ay], [bx, by]] = [player.places[a], player.places[b]];
  const far = Math.hypot(bx - ax, by - ay) || 1, gap = RADIUS + 10;
  const ux = (bx - ax) / far, uy = (by - ay) / far;
  const [x1, y1, x2, y2] = [ax + ux * gap, ay + uy * gap, bx - ux * gap, by - uy * gap];
  const head = (x, y, dx, dy) => draw("path", { class: "head", d: `M${x + dx * 3},${y + dy * 3}L${x - dx * 7 - dy * 4.5},${y - dy * 7 + dx * 4.5}L${x - dx * 7 + dy * 4.5},${y - dy * 7 - dx * 4.5}z` });
  return [draw("line", { class: "arrow", x1, y1, x2, y2 }), head(x2, y2, ux, uy), ...(both ? [head(x1, y1, -ux, -uy)] : [])];
}

// The arrows of the problem; of a learner that learns the scopes those that it believes in, as strong
// as it is sure of them.
function drawArrows(frame) {
  const learned = player.run?.edges ?? null, wanted = learned && learned[frame];
  if (wanted === player.learned) return;
  player.learned = wanted;
  player.arrows.replaceChildren(...(wanted
    ? wanted.map(([a, b, sure]) => {
      const group = draw("g", { opacity: sure, "data-edge": `${a}>${b}`, "data-sure": sure }, ...arrow(a, b, false));
      group.append(Object.assign(draw("title", {}), { textContent: `probability ${sure}` }));
      return group;
    })
    : player.problem.network.arrows.flatMap(([a, b, both]) => arrow(a, b, both))));
}

function sector(from, to) {
  const place = (share) => [RADIUS * Math.sin(2 * Math.PI * share), -RADIUS * Math.cos(2 * Math.PI * share)];
  const [x1, y1] = place(from), [x2, y2] = place(to);
  return `M0,0L${x1},${y1}A${RADIUS},${RADIUS} 0 ${to - from > 0.5 ? 1 : 0},1 ${x2},${y2}z`;
}

function arcPath(share) {
  const radius = RADIUS + 4, turn = Math.min(Math.max(share, 0), 0.9999) * 2 * Math.PI;
  const x = radius * Math.sin(turn), y = -radius * Math.cos(turn);
  return `M0,${-radius}A${radius},${radius} 0 ${turn > Math.PI ? 1 : 0},1 ${x.toFixed(2)},${y.toFixed(2)}`;
}

// Show step t: the state before the action, the action, and the numbers so far.
function show(wanted) {
  const { problem, run } = player;
  const { variables, actions } = problem;
  const t = run ? Math.max(0, Math.min(run.steps, wanted)) : 0;
  player.t = t;
  const state = run ? run.states.subarray(t * variables.length, (t + 1) * variables.length) : problem.initial;
  const acting = run && t < run.steps;
  const action = acting ? actions.map((_, k) => run.actions[t * actions.length + k]) : [];
  const touched = new Set(action.flatMap((value, k) => actions[k].touched[value]));
  let frame = 0;
  if (run) while (frame + 1 < run.times.length && run.times[frame + 1] <= t) frame += 1;
  drawArrows(frame);
  const left = (i) => (run ? run.uncertainty[frame][i] : 1);
  player.nodes.forEach((node, k) => {
    const words = node.variables.map((i) => variables[i].values[state[i]]);
    node.variables.forEach((i, place) => {
      const colour = valueColour(state[i], variables[i].values.length);
      node.sectors[place].setAttribute("fill", colour);
      if (place === 0) node.name.style.fill = node.variables.length === 1 ? inkOn(colour) : "#fff";
    });
    if (node.variables.length > 1) { node.name.style.stroke = "#111"; node.name.style.strokeWidth = "3px"; node.name.style.paintOrder = "stroke"; }
    node.value.textContent = words.join(", ");
    node.title.textContent = node.variables.map((i, place) => `${variables[i].name} = ${words[place]}, uncertainty ${number(left(i))}`).join("\n");
    node.arc.setAttribute("d", arcPath(node.variables.reduce((sum, i) => sum + left(i), 0) / node.variables.length));
    node.group.dataset.values = node.variables.map((i) => state[i]).join(",");
    node.group.dataset.touched = String(touched.has(k));
  });
  byId("scrub").value = String(t);
  byId("scrub").setAttribute("aria-valuetext", `step ${t}`);
  const done = acting ? action.map((value, k) => `${actions[k].name} = ${actions[k].values[value]}`) : [];
  const row = (term, words) => [make("dt", {}, term), make("dd", {}, words)];
  byId("replay-numbers").replaceChildren(
    ...row("Step", run ? `${t.toLocaleString("en-GB")} of ${run.steps.toLocaleString("en-GB")}` : "–"),
    ...row("Action", run ? done.join(", ") || "none: the run ends here" : "–"),
    ...row("Reward", acting ? number(run.rewards[t]) : "–"),
    ...row("Regret so far", run ? number(run.regret[t]) : "–"),
  );
  byId("network-words").textContent = `${problem.name} at step ${t}: ` + variables.map((variable, i) => `${variable.name} ${variable.values[state[i]]}`).join(", ") + (done.length ? `; action ${done.join(", ")}` : "");
  if (run) player.bars.forEach(({ fill, amount }, i) => {
    fill.style.transform = `scaleX(${run.uncertainty[frame][i]})`;
    amount.textContent = `${run.uncertainty[frame][i].toFixed(3)} · ${run.visited[frame][i].toLocaleString("en-GB")}/${run.rows[i].toLocaleString("en-GB")} rows`;
  });
  moveCursor();
  drawStrip();
}

// A strip of the steps around t: one row per variable in its colours, a dot where it was acted on.
function drawStrip() {
  const canvas = byId("strip"), { run, t, problem } = player, { variables, actions } = problem;
  const rows = variables.length, shown = Boolean(run) && rows <= 40;
  canvas.hidden = !shown;
  byId("strip-words").textContent = shown ? "Above: the states around this step, a row for each variable in the order of the factors; a dot where the action acts. Click to go there." : "";
  if (!shown) return;
  const width = canvas.clientWidth || 600, high = Math.max(5, Math.min(12, 130 / rows)), wide = FRAME;
  const sharp = window.devicePixelRatio || 1, height = rows * high + 8;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, width, height);
  const half = Math.ceil(width / 2 / wide), middle = Math.floor(width / 2 - wide / 2);
  const ring = getComputedStyle(document.documentElement).getPropertyValue("--ring");
  const node = player.nodeOf;
  for (let u = Math.max(0, t - half); u <= Math.min(run.steps, t + half); u += 1) {
    const x = middle + (u - t) * wide;
    const touched = new Set(u < run.steps ? actions.flatMap((action, k) => action.touched[run.actions[u * actions.length + k]]) : []);
    for (let i = 0; i < rows; i += 1) {
      const colour = valueColour(run.states[u * rows + i], variables[i].values.length);
      pen.fillStyle = colour;
      pen.fillRect(x, 4 + i * high, wide - 1, high - 1);
      if (touched.has(node[i])) {
        pen.fillStyle = inkOn(colour);
        pen.beginPath();
        pen.arc(x + (wide - 1) / 2, 4 + i * high + (high - 1) / 2, Math.min(2.2, high / 3), 0, 7);
        pen.fill();
      }
    }
  }
  pen.strokeStyle = ring;
  pen.lineWidth = 2;
  pen.strokeRect(middle - 1.5, 1.5, wide + 2, height - 3);
}

function drawFactors() {
  player.bars = player.problem.variables.map(({ name }) => {
    const fill = make("i"), amount = make("span", { class: "amount" });
    return { name: make("span", {}, name), bar: make("span", { class: "bar" }, fill), fill, amount };
  });
  byId("factors").replaceChildren(...player.bars.flatMap(({ name, bar, amount }) => [name, bar, amount]));
}

let chart = null;

function drawChart() {
  const svg = byId("replay-chart"), { run } = player;
  svg.replaceChildren();
  chart = null;
  const width = svg.clientWidth || 400, height = 170;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  if (!run) return;
  const box = { left: 50, right: width - 22, top: 22, bottom: height - 36 };
  const low = run.regret.reduce((a, b) => Math.min(a, b), 0), high = run.regret.reduce((a, b) => Math.max(a, b), 1);
  const x = scale("linear", 0, run.steps, box.left, box.right), y = scale("linear", low, high * 1.03, box.bottom, box.top);
  axes(svg, box, x, y, { x: "steps", y: "realised regret (reward)" }, [4, 4]);
  const every = Math.max(1, Math.floor(run.steps / 700)), at = [];
  for (let t = 0; t <= run.steps; t += every) at.push(t);
  if (at.at(-1) !== run.steps) at.push(run.steps);
  svg.append(draw("path", { d: pathThrough(at.map(x.at), at.map((t) => y.at(run.regret[t]))), fill: "none", stroke: colourOf(player.cell.label), "stroke-width": 1.8 }));
  const line = draw("line", { class: "cross", y1: box.top, y2: box.bottom });
  const dot = draw("circle", { r: 4.5, fill: "var(--ring)", stroke: "var(--card)", "stroke-width": 1.5 });
  svg.append(line, dot);
  chart = { x, y, line, dot };
  moveCursor();
}

function moveCursor() {
  if (!chart || !player.run) return;
  const place = chart.x.at(player.t);
  chart.line.setAttribute("x1", place);
  chart.line.setAttribute("x2", place);
  chart.dot.setAttribute("cx", place);
  chart.dot.setAttribute("cy", chart.y.at(player.run.regret[player.t]));
}
