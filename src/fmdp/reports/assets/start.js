// Start all parts; a change of theme redraws everything.
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const { value } = document.querySelector("#theme input:checked");
  const dark = value === "dark" || (value === "auto" && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  redrawAll();
}

startControls();
report.problems.forEach(startPanel);
startTables();
startReplay();
byId("theme").addEventListener("change", applyTheme);
prefersDark.addEventListener("change", applyTheme);
applyTheme();
