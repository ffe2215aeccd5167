// A page that a server shows: follows a run in progress, and loads its address again once the run has ended.
const live = document.querySelector("[data-stage]");
const SHOWN_AT_FIRST = 10e6;

// Takes over newer data. The view moves along while it includes the newest facts. A chosen message holds the diagram.
function renew(fresh) {
  if (past) return;
  const isFirst = data.end <= 1, follows = view.upto >= whole.upto, isWhole = follows && view.from <= whole.from;
  const length = isFirst ? SHOWN_AT_FIRST : view.upto - view.from;
  unpack(fresh);
  arrange();
  listEvents();
  if (follows) {
    view.upto = whole.upto;
    view.from = isWhole && !isFirst ? whole.from : Math.max(whole.from, whole.upto - length);
  }
  applyFilters();
  showStates();
}

// Puts the filters and the part of the run in view into the address, which the next page reads.
function keepAddress() {
  const kept = new URLSearchParams();
  for (const select of document.querySelectorAll("select[data-filter]")) if (select.value) kept.set(select.dataset.filter, select.value);
  if (live.dataset.stage === "running" && view.upto < whole.upto) {
    kept.set("from", view.from / 1e6);
    kept.set("upto", view.upto / 1e6);
  }
  history.replaceState(null, "", "#" + kept);
}

let saidAt = -Infinity;
function showNow(now) {
  const badge = byId("phase");
  setText(badge, now.phase);
  setText(byId("elapsed"), now.seconds === null ? "" : moment(now.seconds * 1e6, 1));
  setText(byId("sentence"), now.sentence);
  // Screen readers are told at most every five seconds.
  if (performance.now() - saidAt > 5000 && byId("said").textContent !== now.sentence) {
    saidAt = performance.now();
    setText(byId("said"), now.sentence);
  }
  now.clusters.forEach((it, index) => {
    const row = byId("cluster-" + index), bar = row.querySelector("[role=progressbar]");
    setText(row.querySelector(".text"), it.text);
    bar.hidden = it.percent === null;
    bar.setAttribute("aria-valuenow", it.percent ?? 0);
    bar.firstElementChild.style.width = (it.percent ?? 0) + "%";
    setText(row.querySelector(".percent"), it.percent === null ? "" : it.percent + " %");
  });
  standings = now.states;
  showStates();
  const pause = byId("pause");
  if (pause) {
    pause.disabled = now.phase === "starting";
    setText(pause, now.phase === "paused" ? "resume the run" : "pause the run");
  }
}

if (live) {
  const link = document.querySelector("[data-filter=link]");
  // The links that will carry messages are unknown. With many clusters, there are many pairs.
  if (live.dataset.stage === "running" && data.clusters.length <= 8) {
    for (const a of data.clusters) for (const b of data.clusters) link.add(new Option(a === b ? `within ${a.name}` : `${a.name} to ${b.name}`, `${a.name}>${b.name}`));
  }
  if (live.dataset.stage === "running") fates[LOST] = "has not arrived yet";
  const address = "events?stage=" + live.dataset.stage;
  // The report, which stays complete without the server, has no place for this text.
  const lost = byId("lost");
  const say = text => { if (lost) { lost.hidden = !text; setText(lost, text); } };
  const connect = () => {
    const source = new EventSource(address);
    source.addEventListener("reload", () => { keepAddress(); location.reload(); });
    source.addEventListener("now", event => showNow(JSON.parse(event.data)));
    source.addEventListener("diagram", event => renew(JSON.parse(event.data)));
    source.addEventListener("map", event => { byId("links").innerHTML = JSON.parse(event.data); showStates(); });
    source.addEventListener("story", event => { byId("story").innerHTML = JSON.parse(event.data); });
    source.onopen = () => say("");
    source.onerror = () => {
      const time = byId("elapsed")?.textContent;
      say(`Disconnected${time ? " at " + time : ""}. What you see is the last state.`);
      if (source.readyState === EventSource.CLOSED) refused();
    };
  };
  // The browser does not try again if the server refused. Only a request of our own can read the reason.
  const refused = async () => {
    const request = new AbortController();
    try {
      const answer = await fetch(address, { signal: request.signal });
      if (!answer.ok) say((await answer.text()).trim());
    } catch { /* The server has ended. */ }
    request.abort();
    setTimeout(connect, 3000);
  };
  connect();
}

// Changes to the run: sends a fault, or a pause, and says what became of it.
const form = byId("fault");
if (form) {
  const action = form.elements.action, target = form.elements.target, said = byId("answer");
  const pairs = data.clusters.flatMap(a => data.clusters.filter(b => b !== a).map(b => [a.name, b.name]));
  const kinds = {
    crash: ["process", process => ({ crash: { process } })],
    lose: ["process", process => ({ crash: { process, storage: "lost" } })],
    pause: ["process", process => ({ pause: { process, for: "1s" } })],
    cluster: ["cluster", cluster => ({ loseCluster: { cluster } })],
    cut: ["link", ([from, to]) => ({ partition: { from, to, for: "1s" } })],
    slow: ["link", ([from, to]) => ({ link: { from, to, latency: "100ms", for: "2s" } })],
  };
  const targets = { process: data.lanes.map(it => [it, it]), cluster: data.clusters.map(it => [it.name, it.name]),
    link: pairs.map(it => [it.join(" to "), it]) };
  let kind = null;
  const list = () => {
    if (kind === kinds[action.value][0]) return;
    kind = kinds[action.value][0];
    target.replaceChildren(...targets[kind].map(([text]) => new Option(text)));
  };
  const post = async (path, content) => {
    try {
      const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
      setText(said, (await answer.text()).trim());
    } catch {
      setText(said, "The program that serves this page does not answer.");
    }
  };
  action.addEventListener("change", list);
  list();
  form.addEventListener("submit", event => {
    event.preventDefault();
    post("faults", kinds[action.value][1](targets[kind][target.selectedIndex][1]));
  });
  byId("pause").addEventListener("click", () => post("pause", { pause: byId("phase").textContent !== "paused" }));
  // A click on a process chooses it as the target.
  byId("processes").addEventListener("click", event => {
    const cell = event.target.closest("[data-cell]");
    if (!cell) return;
    if (kinds[action.value][0] !== "process") action.value = "crash";
    list();
    target.selectedIndex = [...document.querySelectorAll("[data-cell]")].indexOf(cell);
    action.focus();
  });
}
