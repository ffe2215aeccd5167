// Movement, descriptions and keys.

const NARROWEST = 200;
function look(from, upto) {
  const length = Math.max(NARROWEST, Math.min(upto - from, whole.upto - whole.from));
  from = Math.max(whole.from, Math.min((from + upto - length) / 2, whole.upto - length));
  view.from = from;
  view.upto = from + length;
  hide();
  redraw();
}
function zoom(factor, around = (view.from + view.upto) / 2) {
  const length = (view.upto - view.from) * factor;
  const share = (around - view.from) / (view.upto - view.from);
  look(around - share * length, around + (1 - share) * length);
}
function pan(share) {
  const by = (view.upto - view.from) * share;
  look(view.from + by, view.upto + by);
}

document.getElementById("in").addEventListener("click", () => zoom(.6));
document.getElementById("out").addEventListener("click", () => zoom(1 / .6));
document.getElementById("all").addEventListener("click", () => look(whole.from, whole.upto));
document.getElementById("png").addEventListener("click", () => {
  const link = document.createElement("a");
  link.download = "diagram.png";
  link.href = plot.toDataURL("image/png");
  link.click();
});
document.addEventListener("click", event => {
  const button = event.target.closest("[data-from]");
  if (!button) return;
  const from = +button.dataset.from, upto = +button.dataset.upto, room = Math.max((upto - from) * .6, 60000);
  look(from - room, upto + room);
  plot.scrollIntoView({ block: "nearest", behavior: "smooth" });
  plot.focus({ preventScroll: true });
});

plot.addEventListener("wheel", event => {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * .01), instant(event.offsetX));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan((event.deltaX || event.deltaY) / width);
  }
}, { passive: false });
plot.addEventListener("dblclick", event => zoom(.4, instant(event.offsetX)));

// One finger or the mouse pans, two fingers zoom.
const fingers = new Map();
plot.addEventListener("pointerdown", event => {
  plot.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, event.offsetX);
  plot.classList.add("dragging");
});
plot.addEventListener("pointermove", event => {
  if (!fingers.has(event.pointerId)) return hover(event.offsetX, event.offsetY);
  const before = [...fingers.values()];
  fingers.set(event.pointerId, event.offsetX);
  const after = [...fingers.values()];
  if (after.length === 1) {
    pan((before[0] - after[0]) / (width - left - RIGHT));
  } else if (Math.abs(after[0] - after[1]) > 4) {
    zoom(Math.abs(before[0] - before[1]) / Math.abs(after[0] - after[1]), instant((after[0] + after[1]) / 2));
  }
});
let pressed = 0;
plot.addEventListener("pointerdown", event => { pressed = event.offsetX; });
for (const end of ["pointerup", "pointercancel"]) {
  plot.addEventListener(end, event => {
    if (end === "pointerup" && fingers.size === 1 && Math.abs(event.offsetX - pressed) < 3) {
      const index = nearestMessage(event.offsetX, event.offsetY);
      if (index >= 0) choose(index);
    }
    fingers.delete(event.pointerId);
    if (!fingers.size) plot.classList.remove("dragging");
  });
}
plot.addEventListener("pointerleave", hide);
scroller.addEventListener("scroll", () => { scrolled = scroller.scrollTop; hide(); redraw(); });

function moveTo(event) {
  const at = whole.from + (event.offsetX - left) / (width - left - RIGHT) * (whole.upto - whole.from);
  const half = (view.upto - view.from) / 2;
  look(at - half, at + half);
}
overview.addEventListener("pointerdown", event => { overview.setPointerCapture(event.pointerId); moveTo(event); });
overview.addEventListener("pointermove", event => { if (event.buttons) moveTo(event); });

// --- descriptions

const unitOf = it => {
  const c = data.clusters[group[it.first]];
  return it.first === it.last ? data.lanes[it.first] : it.first === c.first && it.last === c.first + c.lanes - 1 ? c.name : `${data.lanes[it.first]} to ${data.lanes[it.last]}`;
};
function checkpointText(it, member) {
  const [name, saved] = member ? [data.lanes[member[0]], moment(member[1], 4)]
    : [unitOf(it), it.from === it.upto ? moment(it.from, 4) : `${moment(it.from, 4)} to ${moment(it.upto, 4)}`];
  return `${name}: ${it.kind} checkpoint ${it.name}\nsaved at ${saved}, committed ${span(it.committed - (member ? member[1] : it.upto))} later`
    + (it.undone ? "\nundone by a rollback" : "");
}
// The events that `n` and `p` step through. Failures at once are one event.
let events;
function listEvents() {
  const failures = data.outages.filter((it, i) => !i || data.outages[i - 1].from !== it.from || group[data.outages[i - 1].lane] !== group[it.lane]);
  events = [
    ...checkpoints.map(it => ({ at: it.from, lane: it.first, layer: "checkpoints", text: () => checkpointText(it, it.first === it.last && it.members[0]) })),
    ...failures.map(it => ({ at: it.from, lane: it.lane, text: () => `${it.text}\nat ${moment(it.from, 4)}` })),
    ...data.flips.map(it => ({ at: it.at, lane: it.lane, text: () => `${it.text}\nat ${moment(it.at, 4)}` })),
    ...data.rollbacks.filter(it => it.members.length).map(it => ({ at: it.members[0][1], lane: it.members[0][0], layer: "rollbacks",
      text: () => `${it.text}\nfirst state restored at ${moment(it.members[0][1], 4)}` })),
  ].sort((a, b) => a.at - b.at || a.lane - b.lane);
}
listEvents();

// The text of the checkpoint, failure or rollback under the pointer.
function nearestEvent(px, py) {
  let best = null, nearest = 9;
  const look = (layer, lane, at, text) => {
    if (!visible(at, at) || layer && !shown[layer]) return;
    // In a band, checkpoints are ticks at the upper edge.
    const row = rows[rowOf[lane]], middle = row.lane < 0 && layer === "checkpoints" ? rowTop(row) + 3 : y(lane);
    const d = Math.hypot(x(at) - px, middle - py);
    if (d < nearest) { nearest = d; best = text; }
  };
  for (const it of checkpoints) {
    if (!visible(it.from, it.upto)) continue;
    if (!it.members.length || isBand(it.first)) look("checkpoints", it.first, it.from, () => checkpointText(it));
    for (const member of it.members) if (!isBand(member[0])) look("checkpoints", ...member, () => checkpointText(it, member));
  }
  for (const it of data.flips) look(null, it.lane, it.at, () => `${it.text}\nat ${moment(it.at, 4)}`);
  for (const it of data.outages) look(null, it.lane, it.from, () => `${it.text}\nat ${moment(it.from, 4)}`);
  const fault = py < TOP && data.faults.find(it => Math.abs(x(it.at) - px) < 5);
  if (fault) return `fault ${fault.no}: ${fault.text}\nat ${moment(fault.at, 4)}`;
  for (const it of data.rollbacks) {
    for (const [lane, at] of it.members) look("rollbacks", lane, at, () => `${data.lanes[lane]} restored its state at ${moment(at, 4)}\n${it.text}`);
  }
  return best && best();
}
const fates = ["delivered", "delivered, then undone", "re-sent from a log, delivered", "dropped as stale: its send was undone", "never arrived"];

function textOf(i) {
  const flight = messages.arrived[i] - messages.sent[i], fate = messages.fate[i];
  const upto = hasArrived(i) ? `, arrived ${span(flight)} later` : "";
  return nameOf(i) + `\nsent at ${moment(messages.sent[i], 4)}${upto}\n${!hasArrived(i) && fate === UNDONE ? "undone in transit" : fates[fate]}`;
}

function distance(px, py, x1, y1, x2, y2) {
  const dx = x2 - x1, dy = y2 - y1;
  const share = Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x1 - share * dx, py - y1 - share * dy);
}

// The message under the pointer, or -1.
function nearestMessage(px, py) {
  let best = -1, nearest = 5;
  for (const i of lines || []) {
    const d = distance(px, py, x(messages.sent[i]), y(messages.from[i]), ...tipOf(i));
    if (d < nearest) { nearest = d; best = i; }
  }
  return best;
}

const inState = (list, lane, at) => list.find(it => it.lane === lane && it.from <= at && at <= it.upto);

// Describes a row at an instant: the states of its processes, and how many messages they exchange in that column.
function rowText(px, py) {
  const row = rowAt(py), at = instant(px);
  if (!row) return null;
  const words = [[data.outages, "down"], [undone, "work undone"], [recoveries, "recovering"]];
  if (row.lane >= 0) {
    const [list, state] = words.find(([list]) => inState(list, row.lane, at)) || [];
    if (state) { const it = inState(list, row.lane, at); return `${data.lanes[row.lane]}: ${state} (${span(it.upto - it.from)})`; }
  }
  const c = data.clusters[row.cluster], name = row.lane < 0 ? `${c.name} (${count(c.lanes, "process", "processes")})` : data.lanes[row.lane];
  const states = row.lane >= 0 ? [] : words.map(([list, state]) => [state, list.filter(it => group[it.lane] === row.cluster && it.from <= at && at <= it.upto).length])
    .filter(([, number]) => number).map(([state, number]) => `, ${number} ${state}`);
  const place = rows.indexOf(row), column = Math.floor((px - left) / COLUMN);
  if (!shades || row.lane >= 0 && !dense || place < shades.first || place > shades.last) return states.length ? name + states.join("") : null;
  let number = 0;
  for (let strip = 0; strip < 3; strip++) number += shades.bins[((place - shades.first) * 3 + strip) * shades.columns + column] || 0;
  const length = COLUMN / inner() * (view.upto - view.from);
  return `${name}${states.join("")}\n${count(Math.round(number), "send or delivery", "sends and deliveries")} within ${span(Math.round(length))} around ${moment(at, 2)}`;
}

function find(px, py) {
  const text = nearestEvent(px, py), near = text ? -1 : nearestMessage(px, py);
  return text || (near >= 0 ? textOf(near) + "\nclick for its causal past" : rowText(px, py));
}

function hover(px, py) {
  const text = px < left ? null : find(px, py);
  if (text) say(text, px, py); else hide();
}
function say(text, px, py) {
  tip.textContent = text;
  tip.classList.add("on");
  tip.style.left = Math.max(4, Math.min(px + 14, width - tip.offsetWidth - 6)) + "px";
  tip.style.top = (py + 18 + tip.offsetHeight > high + OVERVIEW ? py - tip.offsetHeight - 12 : py + 18) + "px";
}
function hide() { tip.classList.remove("on"); }

let current = -1;
function step(by) {
  const moments = events.filter(it => !it.layer || shown[it.layer]);
  if (!moments.length) return;
  current = (current + by + moments.length) % moments.length;
  const it = moments[current];
  if (!visible(it.at, it.at)) {
    const half = (view.upto - view.from) / 2;
    look(it.at - half, it.at + half);
  }
  say(it.text(), x(it.at), y(it.lane));
}

plot.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { "+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6), "0": () => look(whole.from, whole.upto),
    Home: () => look(whole.from, whole.upto), ArrowLeft: () => pan(-.15), ArrowRight: () => pan(.15),
    n: () => step(1), p: () => step(-1), f: () => foldAll(), "[": () => chooseProcess(-1), "]": () => chooseProcess(1),
    " ": () => play(!timer), "?": () => { keys.open = !keys.open; }, i: () => askForFault(), Escape: () => { hide(); setFilter("process", ""); choose(null); } }[event.key];
  if (act) { event.preventDefault(); act(); }
});

// Shows only the messages of the next process, and says which one that is.
const keys = byId("keys");
function setFilter(name, value) {
  document.querySelector(`select[data-filter="${name}"]`).value = value;
  setters[name](value);
}
function chooseProcess(by) {
  const chosen = data.lanes.indexOf(document.querySelector("select[data-filter=process]").value);
  const lane = (chosen + by + (chosen < 0 && by < 0 ? 1 : 0) + lanes) % lanes;
  setFilter("process", data.lanes[lane]);
  applyFilters();
  say(`${data.lanes[lane]}: ${stateOf(lane)[0]}`, x(Math.min(cursor ?? data.end, view.upto)), y(lane));
}
// On a page that adds faults: chooses what happens to the process whose messages are shown.
function askForFault() {
  const form = byId("fault"), process = document.querySelector("select[data-filter=process]").value;
  if (!form) return;
  form.elements.action.focus();
  const option = [...form.elements.target.options].find(it => it.text === process);
  if (option) option.selected = true;
}

// --- folding

data.clusters.forEach((c, index) => {
  if (!c.lanes) return;
  const button = document.createElement("button");
  button.dataset.cluster = index;
  button.textContent = `${c.name} (${c.lanes})`;
  button.title = `${c.name}: ${count(c.lanes, "process", "processes")}; click to fold or unfold`;
  button.addEventListener("click", () => { folded[index] = !folded[index]; hide(); redraw(); });
  button.addEventListener("keydown", event => { if (event.key === "f") button.click(); });
  names.append(button);
});
function foldAll() {
  folded.fill(!folded.some(it => it));
  hide();
  redraw();
}

// The symbols next to the switches.
function drawLegend() {
  for (const sign of document.querySelectorAll("canvas[data-sign]")) {
    const scale = window.devicePixelRatio || 1;
    sign.width = 26 * scale;
    sign.height = 14 * scale;
    const s = sign.getContext("2d");
    s.scale(scale, scale);
    const stroke = (color, dash, wide = 1.4) => {
      s.strokeStyle = color; s.lineWidth = wide; s.setLineDash(dash);
      s.beginPath(); s.moveTo(2, 12); s.lineTo(24, 2); s.stroke();
    };
    const block = color => { s.fillStyle = color; s.fillRect(2, 3, 22, 8); };
    ({
      between: () => stroke(colors.c0, []), within: () => stroke(colors.faint, [], 1),
      undone: () => stroke(colors.bad, [4, 3]), resent: () => stroke(colors.resent, [], 1.8),
      checkpoints: () => { checkpointSign(s, "unforced", false, 6, 7, 4, colors.ink); checkpointSign(s, "forced", false, 18, 7, 4, colors.ink); },
      initial: () => checkpointSign(s, "initial", false, 13, 7, 4, colors.ink),
      past: () => { checkpointSign(s, "unforced", true, 6, 7, 4, colors.ink); checkpointSign(s, "forced", true, 18, 7, 4, colors.ink); },
      rollbacks: () => { s.strokeStyle = s.fillStyle = colors.bad; s.lineWidth = 1.4; s.beginPath(); s.moveTo(23, 12); s.bezierCurveTo(23, 1, 5, 1, 5, 8); s.stroke(); s.beginPath(); s.moveTo(5, 12); s.lineTo(2, 7); s.lineTo(8, 7); s.fill(); },
      lines: () => stroke(colors.ink, [5, 3], 1.8),
      failure: () => cross(s, 13, 7, 4.5), flip: () => triangle(s, 13, 7, 4),
      down: () => block(colors.down), recovering: () => block(colors.recovering), lost: () => block(colors.undone),
    })[sign.dataset.sign]?.();
  }
}

// In a narrow window, a table is a list of names and values.
for (const table of document.querySelectorAll(".table")) {
  const heads = [...table.querySelectorAll("th")].map(it => it.textContent);
  for (const row of table.querySelectorAll("tbody tr")) [...row.cells].forEach((cell, i) => { cell.dataset.name = heads[i]; });
  if (!table.classList.contains("matrix")) table.classList.add("list");
}
