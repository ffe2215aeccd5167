// Odd-even transposition sort: each rank draws numbers, and neighbours compare and split until all numbers are sorted
// across the ranks.
"use strict";
const readline = require("node:readline");

let rank; // what never changes
let state; // everything that a checkpoint must contain

function begin() {
  // A program must not use Math.random(): all that it draws derives from its seed.
  let seed = rank.seed % 2147483647 || 1;
  const draw = () => (seed = (seed * 48271) % 2147483647);
  const numbers = Array.from({ length: rank.parameters.numbers }, draw).sort((a, b) => a - b);
  return { numbers, round: 0 };
}

// Returns the rank with which this one exchanges its numbers in this round, if there is one.
function partner() {
  const other = (rank.me + state.round) % 2 === 0 ? rank.me + 1 : rank.me - 1;
  return other >= 0 && other < rank.ranks ? other : null;
}

function next() {
  while (state.round < rank.ranks && partner() === null) state.round += 1;
  if (state.round === rank.ranks) return [{ do: "finish", result: state.numbers }];
  return [
    { do: "compute", for: 100e6 },
    { do: "send", to: partner(), content: state.numbers },
    { do: "receive", from: partner() },
  ];
}

function received({ from, content }) {
  const all = state.numbers.concat(content).sort((a, b) => a - b);
  const half = state.numbers.length;
  state.numbers = from > rank.me ? all.slice(0, half) : all.slice(-half);
  state.round += 1;
}

function answer(event) {
  switch (event.event) {
    case "hello":
      return { contract: 1 };
    case "start":
      rank = event;
      state = begin();
      return {};
    case "save":
      return { state };
    case "restore":
      state = event.state ?? begin();
      return {};
    case "next":
      return { do: next() };
    case "received":
      received(event.messages[0]);
      return { progress: { done: state.round, total: rank.ranks } };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const event = JSON.parse(line);
  process.stdout.write(JSON.stringify({ n: event.n, ...answer(event) }) + "\n");
});
