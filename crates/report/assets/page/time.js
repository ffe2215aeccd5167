// One time, for the diagram, the states of the processes and the map. `null` is the newest time.
let cursor = null, timer = null;
// The states at the newest time, while a run is in progress.
let standings = null;
const slider = byId("time"), cells = [...document.querySelectorAll("[data-cell]")];
const signs = byId("processes") ? JSON.parse(byId("processes").dataset.signs) : [];
const isInProgress = document.querySelector("[data-stage=running]") !== null;
const PLAYED_WITHIN = 30000, STEP = 50;
const newest = () => cursor === null ? data.end : cursor;

// The state of a process, and its sign.
function stateOf(lane) {
  if (cursor === null && standings) return signs[standings[lane]] || ["", ""];
  const is = list => inState(list, lane, newest());
  const name = newest() < 0 || isInProgress && !standings ? "starting" : is(data.outages) ? "down" : is(recoveries) ? "recovering" : "up";
  return signs.find(it => it[0] === name) || [name, ""];
}

function showStates() {
  const running = data.clusters.map(() => 0);
  for (let lane = 0; lane < lanes; lane++) {
    const [name, sign] = stateOf(lane), cell = cells[lane];
    running[group[lane]] += ["up", "recovering", "finished"].includes(name);
    if (!cell || cell.dataset.cell === name) continue;
    cell.dataset.cell = name;
    setText(cell.querySelector(".sign"), sign);
    setText(cell.querySelector(".state"), name);
    cell.title = `${data.lanes[lane]}: ${name}`;
  }
  for (const it of document.querySelectorAll("[data-up]")) {
    const cluster = data.clusters[it.dataset.up];
    setText(it, `${running[it.dataset.up]} of ${cluster.lanes} up`);
  }
  const cut = new Set(data.cuts.filter(([,, from, upto]) => from <= newest() && newest() < upto).map(([from, to]) => `${from}>${to}`));
  for (const it of document.querySelectorAll("[data-link]")) it.classList.toggle("cut", cut.has(it.dataset.link));
  if (cursor === null) slider.value = slider.max;
  const at = moment(newest(), 2);
  setText(byId("at"), at);
  setText(byId("moment"), standings && cursor === null ? "" : standings ? `at ${at}` : at);
  slider.setAttribute("aria-valuetext", at);
}

function moveCursor(at) {
  cursor = at >= data.end ? null : at;
  slider.value = cursor === null ? slider.max : (at - data.begin) / (data.end - data.begin) * slider.max;
  if (cursor !== null && !visible(at, at)) look(at - (view.upto - view.from) / 2, at + (view.upto - view.from) / 2);
  showStates();
  redraw();
}
function play(starts) {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = starts ? "\u2016" : "\u25b6";
  byId("play").setAttribute("aria-label", starts ? "Pause" : "Play");
  if (!starts) return;
  if (cursor === null) moveCursor(data.begin);
  timer = setInterval(() => {
    moveCursor(newest() + (data.end - data.begin) * STEP / PLAYED_WITHIN);
    if (cursor === null) play(false);
  }, STEP);
}
slider.addEventListener("input", () => moveCursor(data.begin + slider.value / slider.max * (data.end - data.begin)));
byId("play").addEventListener("click", () => play(!timer));
byId("play").hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
if (byId("states")) byId("states").hidden = false;

function refresh() { readColors(); drawLegend(); resize(); }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
new ResizeObserver(() => { if (scroller.clientWidth !== width) resize(); }).observe(scroller.parentElement);
addEventListener("resize", resize);
refresh();
readAddress();
drawAll();
showStates();
