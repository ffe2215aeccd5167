// Where everything is: rows, columns, and how many messages each of them has.
const TOP = 44, HEADER = 28, BAND = 28, AXIS = 30, OVERVIEW = 40, RIGHT = 12, COLUMN = 3;
const MOST_PER_PIXEL = 3;
const scroller = document.getElementById("scroll"), names = document.getElementById("names");

// What `arrange` derives from the data: the whole run with a margin, the processes of folded clusters that keep their own
// lanes, and, if the page does not contain all messages, how many messages each process of the run sent and received.
let whole, alone, counts;
function arrange() {
  const margin = (data.end - data.begin) * .01;
  whole = { from: data.begin - margin, upto: data.end + margin };
  alone = findAlone();
  counts = data.counts && unpackCounts();
}
let width = 0, left = 90, scrolled = 0, high = 0;
const inner = () => width - left - RIGHT;
const x = at => left + (at - view.from) / (view.upto - view.from) * inner();
const instant = px => view.from + (px - left) / inner() * (view.upto - view.from);
const visible = (from, upto) => upto >= view.from && from <= view.upto;

// The processes that failed or rolled back alone, up to a few.
function findAlone() {
  const all = data.rollbacks.filter(it => it.members.length === 1).map(it => it.members[0][0]);
  const failed = new Map();
  for (const it of data.outages) {
    const at = group[it.lane] + " " + Math.round(it.from / 1e5);
    failed.set(at, [...failed.get(at) || [], it.lane]);
  }
  for (const some of failed.values()) if (some.length <= 3) all.push(...some);
  const some = new Set();
  data.clusters.forEach((c, index) => [...new Set(all.filter(it => group[it] === index))].slice(0, 6).forEach(it => some.add(it)));
  return some;
}

function unpackCounts() {
  const { number, more } = reader(data.counts.cells), places = [], numbers = [], columns = data.counts.columns;
  for (let place = 0; more(); place++) {
    places.push(place += number());
    numbers.push(number());
  }
  return { columns, places, numbers, length: (data.end - data.begin + 1) / columns };
}

arrange();
const view = { ...whole };

// A row is a lane, or a band with all processes of a folded cluster.
const folded = data.clusters.map(c => c.lanes > data.most_expanded);
const rowOf = new Uint32Array(lanes);
let rows = [], dense = false, laneHeight = 30, content = 0, laid = "";
const rowTop = row => TOP + row.top - scrolled;
const y = lane => { const row = rows[rowOf[lane]]; return rowTop(row) + row.height / 2; };
const isBand = lane => rows[rowOf[lane]].lane < 0;
const isOnScreen = row => rowTop(row) + row.height > TOP && rowTop(row) - HEADER < high - AXIS;
const rowAt = py => py > TOP && py < high - AXIS ? rows.find(row => Math.abs(rowTop(row) + row.height / 2 - py) <= row.height / 2) : undefined;
// On a narrow window, the names of processes omit the cluster.
function labelOf(lane) {
  const prefix = data.clusters[group[lane]].name + "-", name = data.lanes[lane];
  return width < 560 && name.startsWith(prefix) && name.length > prefix.length ? name.slice(prefix.length - 1) : name;
}

// Assigns rows to lanes. The diagram is never higher than most of the window; it scrolls inside.
function lay() {
  const expanded = data.clusters.reduce((sum, c, index) => sum + (folded[index] ? 0 : c.lanes), 0);
  const most = Math.max(260, innerHeight * (width < 560 ? .6 : .7)), fixed = TOP + AXIS + data.clusters.length * (HEADER + 4);
  laneHeight = expanded <= 16 ? 30 : expanded <= 40 ? 22 : expanded <= 90 ? 14 : 9;
  if (dense && expanded > data.most_expanded) laneHeight = Math.min(laneHeight, Math.max(1.5, (most - fixed) / expanded));
  rows = [];
  content = 0;
  const add = (cluster, lane, height) => { rows.push({ cluster, lane, top: content, height }); content += height; };
  data.clusters.forEach((c, index) => {
    if (!c.lanes) return;
    content += HEADER;
    if (folded[index]) {
      rowOf.fill(rows.length, c.first, c.first + c.lanes);
      add(index, -1, BAND);
    }
    for (let lane = c.first; lane < c.first + c.lanes; lane++) {
      if (folded[index] && !alone.has(lane)) continue;
      rowOf[lane] = rows.length;
      add(index, lane, folded[index] ? 16 : laneHeight);
    }
  });
  content += 4;
  high = Math.round(Math.min(TOP + content + AXIS, most));
  const now = [width, rows.length, content, high].join();
  if (now === laid) return;
  laid = now;
  g.font = "12px " + FONT;
  const wide = rows.map(row => row.lane < 0 ? 0 : g.measureText(labelOf(row.lane)).width);
  left = Math.ceil(wide.reduce((most, it) => Math.max(most, it), 46)) + 18;
  scroller.style.maxHeight = high + "px";
  scroller.firstElementChild.style.height = TOP + content + AXIS + "px";
  scrolled = scroller.scrollTop;
  size(plot, high);
}

// --- messages in view

// The first message that can still be in transit at `at`.
function firstVisible(at) {
  let low = 0, upto = messages.size;
  while (low < upto) {
    const middle = (low + upto) >> 1;
    if (messages.sent[middle] < at - slowest) low = middle + 1; else upto = middle;
  }
  return low;
}
// Calls `act` for every selected message in view, until it returns `false`.
function eachInView(act) {
  const { size, sent, arrived } = messages, { from, upto } = view;
  for (let i = firstVisible(from); i < size && sent[i] <= upto; i++) {
    if (selected[i] && (sent[i] >= from || arrived[i] >= from) && act(i) === false) return;
  }
}

// The messages to draw as lines, or `null` if there are too many: in total, or because a quarter of them would cover others.
function linesInView() {
  const lines = [], columns = new Map();
  let covered = 0, areTooMany = false;
  eachInView(i => {
    const from = messages.from[i], to = messages.to[i];
    if (from !== to && rowOf[from] === rowOf[to]) return true;
    areTooMany = lines.push(i) > data.most_lines;
    if (areTooMany) return false;
    const column = (Math.floor(x(messages.sent[i])) * lanes + rowOf[from]) * lanes + rowOf[to];
    const before = columns.get(column) || 0;
    covered += before >= MOST_PER_PIXEL;
    columns.set(column, before + 1);
    return true;
  });
  return areTooMany || covered * 4 > lines.length ? null : lines;
}

// --- shades

const isCounted = () => counts && !past && !filter.lanes && filter.fate === null && !filter.link;

// Calls `add(lane, fate, between, at, length, number)` for every send and delivery that is shown, or for the number of them
// in a period.
function eachEnd(ofView, add) {
  if (!isCounted()) {
    const { from, to, sent, arrived, fate } = messages;
    const both = i => {
      const between = isBetween(i);
      add(from[i], fate[i], between, sent[i], 0, 1);
      if (hasArrived(i)) add(to[i], fate[i], between, arrived[i], 0, 1);
    };
    if (ofView) eachInView(both);
    else for (let i = 0; i < messages.size; i++) if (selected[i]) both(i);
    return;
  }
  for (let i = 0; i < counts.places.length; i++) {
    const row = Math.floor(counts.places[i] / counts.columns), at = data.begin + counts.places[i] % counts.columns * counts.length;
    const fate = row % 10 >> 1, between = row % 2 === 0;
    if (shown[layerOf(fate, between)]) add(Math.floor(row / 10), fate, between, at, counts.length, counts.numbers[i]);
  }
}

// Counts the messages per column: three strips for each row on the screen (delivered, undone or lost, and re-sent), then one
// for each cluster, of its messages from and to others.
let pool = new Float32Array(0);
function countShades() {
  const columns = Math.ceil(inner() / COLUMN), first = rows.findIndex(isOnScreen);
  const last = rows.findLastIndex(isOnScreen), strips = (last - first + 1) * 3;
  const size = (strips + data.clusters.length) * columns, bins = pool.length < size ? pool = new Float32Array(size) : pool.fill(0);
  const scale = inner() / COLUMN / (view.upto - view.from);
  const put = (strip, at, length, number) => {
    if (!length) {
      const column = Math.floor((at - view.from) * scale);
      if (column >= 0 && column < columns) bins[strip * columns + column] += number;
      return;
    }
    const from = (at - view.from) * scale, upto = from + length * scale;
    const begin = Math.max(0, Math.floor(from)), end = Math.min(columns - 1, Math.floor(upto));
    for (let column = begin; column <= end; column++) {
      bins[strip * columns + column] += number * (Math.min(upto, column + 1) - Math.max(from, column)) / (upto - from);
    }
  };
  eachEnd(true, (lane, fate, between, at, length, number) => {
    const row = rowOf[lane];
    if (row >= first && row <= last) put((row - first) * 3 + (fate === DELIVERED ? 0 : fate === RESENT ? 2 : 1), at, length, number);
    if (between) put(strips + group[lane], at, length, number);
  });
  return { columns, first, last, strips, bins };
}
