// Tables that sort by any column, with filters for measure and problem, and export as CSV.
function startTable(id, columns, allRows, sortedBy, mark) {
  const tools = byId(`${id}-tools`), box = byId(`${id}-table`);
  const chosen = { measure: report.opens, problem: "", column: sortedBy, up: true, all: false };
  const choice = (words, options, apply, chosenFirst = options[0][0]) => {
    const select = make("select", {}, ...options.map(([value, text]) => make("option", { value }, text)));
    select.value = chosenFirst;
    select.addEventListener("change", () => { apply(select.value); redraw(); });
    return make("label", { class: "select" }, words, select);
  };
  tools.append(
    choice("Measure", report.measures.map(({ key, name }) => [key, name]), (value) => { chosen.measure = value; }, report.opens),
    choice("Problem", [["", "all"], ...report.problems.map(({ name }) => [name, name])], (value) => { chosen.problem = value; }),
  );
  const save = make("button", { type: "button" }, "Save as CSV");
  save.addEventListener("click", () => saveCsv(`${id}.csv`, columns, rows()));
  tools.append(save);
  const MOST = 200;

  function rows() {
    const { key, order } = columns[chosen.column];
    const value = order ?? ((row) => row[key]);
    const found = allRows.filter((row) => row.measure === chosen.measure && (!chosen.problem || row.problem === chosen.problem));
    const compare = (a, b) => {
      const one = value(a), two = value(b);
      if (one === null || two === null) return (one === null) - (two === null);
      const sign = typeof one === "number" ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
      return chosen.up ? sign : -sign;
    };
    return found.map((row, place) => [row, place]).sort(([a, i], [b, j]) => compare(a, b) || i - j).map(([row]) => row);
  }

  function redraw() {
    const focused = document.activeElement?.closest?.(`#${id}-table th`)?.cellIndex;
    const heads = columns.map((column, place) => {
      const button = make("button", { type: "button" }, column.head);
      button.addEventListener("click", () => {
        chosen.up = chosen.column === place ? !chosen.up : true;
        chosen.column = place;
        redraw();
      });
      const head = make("th", { scope: "col", class: column.text ? "" : "number" }, button);
      head.setAttribute("aria-sort", chosen.column !== place ? "none" : chosen.up ? "ascending" : "descending");
      return head;
    });
    const found = rows(), shown = chosen.all ? found : found.slice(0, MOST);
    const body = shown.map((row) => make("tr", {}, ...columns.map((column) => {
      const cell = make("td", { class: column.label ? "words label" : column.sentence ? "" : column.text ? "words" : "number" });
      if (column.label) cell.append(swatch(row[column.key], 26));
      cell.append(column.show ? column.show(row) : column.text ? row[column.key] : number(row[column.key]));
      if (mark && mark(row, column)) { cell.classList.add("best"); cell.title = "the lowest median of this problem"; }
      return cell;
    })));
    box.replaceChildren(make("table", { class: "data" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body)));
    if (found.length > shown.length) {
      const more = make("button", { type: "button" }, `Show all ${found.length.toLocaleString("en-GB")} rows`);
      more.addEventListener("click", () => { chosen.all = true; redraw(); });
      box.append(more);
    }
    if (!found.length) box.append(make("p", { class: "caption" }, "Nothing to compare: no two learners share a seed here."));
    if (focused !== undefined) box.querySelectorAll("th button")[focused]?.focus();
  }
  redraws.push(redraw);
}

function saveCsv(name, columns, rows) {
  const quoted = (value, absent = "") => {
    const text = value === null || value === undefined ? absent : Array.isArray(value) ? value.join(" to ") : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns.map((column) => column.head), ...rows.map((row) => columns.map((column) => row[column.key]))];
  const text = lines.map((line) => line.map((value, place) => quoted(value, columns[place].absent)).join(",")).join("\r\n") + "\r\n";
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function startTables() {
  // A missing range (null) is an interval with too few runs.
  const range = (head, key) => ({
    head, key, absent: report.tooSmall,
    show: (row) => (row[key] ? `${number(row[key][0])} to ${number(row[key][1])}` : report.tooSmall),
    order: (row) => (row[key] ? row[key][0] : null),
  });
  const lowest = new Map();
  for (const row of report.summaries) {
    const key = `${row.measure} ${row.problem}`;
    if (row.role !== "upper" && !(lowest.get(key) <= row.median)) lowest.set(key, row.median);
  }
  startTable("summary", [
    { head: "Problem", key: "problem", text: true },
    { head: "Learner", key: "label", text: true, label: true },
    { head: "Median", key: "median" },
    range("95 % interval", "interval"),
    range("Quartiles", "quartiles"),
    { head: "Mean", key: "mean" },
    range("Mean, 95 %", "meanInterval"),
    { head: "Worst run", key: "worst" },
    { head: "Runs", key: "runs" },
    { head: "Steps", key: "steps" },
    { head: "µs per step", key: "microseconds" },
    ...report.columns,
    { head: "Seconds per run", key: "seconds" },
  ], report.summaries, 0, (row, column) =>
    column.key === "median" && row.role !== "upper" && row.median === lowest.get(`${row.measure} ${row.problem}`));
  startTable("comparisons", [
    { head: "Problem", key: "problem", text: true },
    { head: "First", key: "first", text: true, label: true },
    { head: "Second", key: "second", text: true, label: true },
    { head: "Median difference", key: "median" },
    range("95 % interval", "interval"),
    { head: "Seeds", key: "seeds" },
    { head: "First lower in", key: "lower", show: (row) => `${row.lower} of ${row.seeds}` },
    { head: "p", key: "p", show: (row) => probability(row.p) },
    { head: "p (Holm)", key: "adjusted", show: (row) => probability(row.adjusted) },
    { head: "Finding", key: "verdict", text: true, sentence: true },
    { head: "Mean difference", key: "mean" },
    range("Mean, 95 %", "meanInterval"),
    { head: "Pairs of the question", key: "family" },
  ], report.comparisons, 0);
}
