//! The breadth-first search. The first violating run that it finds is one of the shortest.
//!
//! The search proceeds level by level: a level consists of all states whose shortest runs have the same length. Each
//! thread takes a chunk of the level at a time, and finds the states that follow. Of several steps to the same new
//! state, the search keeps the first, in the order of the level and of the choices. Therefore, the number of threads
//! does not affect the result.

use std::collections::HashSet;
use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::bounds::Bounds;
use crate::independence::Action;
use crate::key::{Key, Unhashed};
use crate::state::{Choice, Choices, State};
use crate::subject::Subject;
use crate::tables::Tables;

/// The number of states that are visited between two reports of progress.
const BATCH: usize = 32_768;
/// The number of states that a thread visits at a time.
const CHUNK: usize = 256;
/// The number of runs that are judged between two reports of progress.
const JUDGED: usize = 256;
/// The number of parts of the set of visited states. Each is extended by one thread at a time.
const SHARDS: usize = 32;

/// The progress of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchExtent {
    /// The number of distinct states visited.
    pub states: u64,
    /// The number of steps performed.
    pub steps: u64,
    /// The number of steps of the longest run.
    pub depth: u32,
    /// The number of distinct complete runs, all of which were judged.
    pub runs: u64,
    /// The number of distinct runs that could not be judged completely, for example because all copies of a
    /// part were lost.
    pub unknown: u64,
    /// Whether a run has as many overtakings as the bounds permit, in which case a larger bound may lead to
    /// more states.
    pub is_bounded: bool,
}

/// A step that led to a state, and the state before it.
#[derive(Clone, Copy)]
struct Step {
    from: u32,
    choice: Choice,
}

type Keys = HashSet<Key, Unhashed>;

/// How a search ends.
pub(crate) enum End {
    /// All states have been visited.
    Exhausted,
    /// The bound on states was reached.
    Stopped,
    /// The run that these choices lead to violates a property.
    Found(Vec<Choice>),
    /// The caller ended the search.
    Interrupted,
}

/// The judgement of a complete run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Sound,
    Unknown,
    Violating,
}

pub(crate) struct Search<'a> {
    subject: &'a Subject,
    bounds: Bounds,
    /// Whether to omit steps that lead to visited states ([`independence`](crate::independence)). Requires that every
    /// order is explored.
    pub(crate) is_reduced: bool,
    /// The maximum number of process states whose contents are kept. Beyond it, the search drops some.
    pub(crate) most_contents: usize,
    threads: ThreadPool,
    /// Judges the run that these choices lead to.
    judge: &'a (dyn Fn(&Tables, &[Choice]) -> Run + Sync),
    /// Called regularly, and after each level. Returns whether to continue.
    progress: &'a mut dyn FnMut(&SearchExtent) -> bool,
    pub(crate) tables: Tables,
    visited: Visited,
    /// The keys of the complete runs that were judged.
    judged: Keys,
    /// For each state except the first, the step that led to it.
    steps: Vec<Step>,
    pub(crate) extent: SearchExtent,
}

/// See [`Search::most_contents`].
const MOST_CONTENTS: usize = 20_000;

/// States in order, each encoded as a list of numbers.
#[derive(Default)]
struct States {
    words: Vec<u32>,
    /// For each state, the choices that are not performed in it.
    asleep: Vec<Action>,
    /// For each state, the ends of its words and of its sleeping choices.
    ends: Vec<(usize, usize)>,
}

impl States {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, place: usize) -> (&[u32], &[Action]) {
        let start = if place == 0 { (0, 0) } else { self.ends[place - 1] };
        let end = self.ends[place];
        (&self.words[start.0..end.0], &self.asleep[start.1..end.1])
    }

    fn push(&mut self, words: &[u32], asleep: impl IntoIterator<Item = Action>) {
        self.words.extend_from_slice(words);
        self.asleep.extend(asleep);
        self.ends.push((self.words.len(), self.asleep.len()));
    }

    fn clear(&mut self) {
        self.words.clear();
        self.asleep.clear();
        self.ends.clear();
    }
}

/// The states that follow those of a chunk and have not been visited, in order.
#[derive(Default)]
struct Following {
    states: States,
    /// For each state, its key, the position (in the level) of the state before it, the choice, and whether a larger
    /// bound on overtakings may lead to more states.
    reached: Vec<(Key, usize, Choice, bool)>,
    /// For each part of the set of visited states, the positions in `reached` of the states that belong to this part.
    shards: [Vec<u32>; SHARDS],
    /// The number of steps performed.
    steps: u64,
}

struct Visited([Keys; SHARDS]);

fn shard(key: Key) -> usize {
    (key >> 96) as usize % SHARDS
}

impl Visited {
    fn contains(&self, key: Key) -> bool {
        self.0[shard(key)].contains(&key)
    }

    fn insert(&mut self, key: Key) -> bool {
        self.0[shard(key)].insert(key)
    }

    /// Adds the states of all chunks. Returns which ones are new.
    fn add(&mut self, chunks: &[Following]) -> Vec<Vec<bool>> {
        let new: Vec<Vec<(u32, u32)>> = self
            .0
            .each_mut()
            .into_par_iter()
            .enumerate()
            .map(|(shard, keys)| {
                let mut new = Vec::new();
                for (number, chunk) in (0..).zip(chunks) {
                    let places = chunk.shards[shard].iter().copied();
                    new.extend(
                        places.filter(|it| keys.insert(chunk.reached[*it as usize].0)).map(|it| (number, it)),
                    );
                }
                new
            })
            .collect();
        let mut is_new: Vec<Vec<bool>> = chunks.iter().map(|it| vec![false; it.reached.len()]).collect();
        for (chunk, place) in new.into_iter().flatten() {
            is_new[chunk as usize][place as usize] = true;
        }
        is_new
    }
}

impl<'a> Search<'a> {
    /// Prepares a search with `jobs` threads.
    pub(crate) fn new(
        subject: &'a Subject,
        bounds: Bounds,
        jobs: usize,
        judge: &'a (dyn Fn(&Tables, &[Choice]) -> Run + Sync),
        progress: &'a mut dyn FnMut(&SearchExtent) -> bool,
    ) -> Search<'a> {
        Search {
            subject,
            bounds,
            // If overtakings are limited, hardly any steps are independent (docs/explore.md).
            is_reduced: bounds.overtakings.is_none(),
            most_contents: MOST_CONTENTS,
            threads: ThreadPoolBuilder::new().num_threads(jobs).build().expect("threads start"),
            judge,
            progress,
            tables: subject.tables(),
            visited: Visited(std::array::from_fn(|_| Keys::default())),
            judged: Keys::default(),
            steps: Vec::new(),
            extent: SearchExtent::default(),
        }
    }

    /// Runs the search, and returns how it ended.
    pub(crate) fn run(&mut self) -> End {
        let first = self.subject.begun(&self.bounds, &self.tables, &mut ());
        let mut words = Vec::new();
        self.visited.insert(first.key(&self.tables, &mut words));
        self.extent.states += 1;
        let (mut level, mut next) = (States::default(), States::default());
        words.clear();
        first.write(&mut words);
        level.push(&words, []);
        // The number of the step to the first state of the level.
        let mut number = u32::MAX;
        for depth in 0.. {
            self.extent.depth = depth;
            if let Some(end) = self.judge(&level, number) {
                return end;
            }
            self.drop_contents(&level);
            let following = self.steps.len() as u32;
            for start in (0..level.len()).step_by(BATCH) {
                let chunks = self.follow(&level, start..level.len().min(start + BATCH));
                let is_new = self.threads.install(|| self.visited.add(&chunks));
                let Search { steps, extent, .. } = self;
                for (chunk, is_new) in chunks.iter().zip(&is_new) {
                    extent.steps += chunk.steps;
                    for (place, (_, from, choice, is_bounded)) in chunk.reached.iter().enumerate() {
                        if is_new[place] {
                            extent.states += 1;
                            extent.is_bounded |= is_bounded;
                            steps.push(Step { from: number.wrapping_add(*from as u32), choice: *choice });
                            let (words, asleep) = chunk.states.get(place);
                            next.push(words, asleep.iter().copied());
                            if extent.states >= self.bounds.states {
                                return End::Stopped;
                            }
                        }
                    }
                }
                if !(self.progress)(&self.extent) {
                    return End::Interrupted;
                }
            }
            if next.len() == 0 {
                return End::Exhausted;
            }
            std::mem::swap(&mut level, &mut next);
            next.clear();
            number = following;
        }
        unreachable!("a search has finitely many levels")
    }

    /// Judges the complete runs that follow from the quiet states of a level. Returns how the search ends, if it does.
    fn judge(&mut self, level: &States, number: u32) -> Option<End> {
        let Search { tables, threads, judge, judged, steps, extent, .. } = self;
        let quiet: Vec<Vec<(u32, Key)>> = threads.install(|| {
            let quiet = chunks(0..level.len()).map(|chunk| {
                let (mut state, mut choices, mut quiet) = (State::default(), Choices::default(), Vec::new());
                for place in chunk {
                    state.read(level.get(place).0);
                    if state.is_quiet(tables, &mut choices) {
                        quiet.push((number.wrapping_add(place as u32), state.completion(tables)));
                    }
                }
                quiet
            });
            quiet.collect()
        });
        let new = quiet.into_iter().flatten().filter(|(_, completion)| judged.insert(*completion));
        let paths: Vec<Vec<Choice>> = new.map(|(number, _)| path(steps, number)).collect();
        for paths in paths.chunks(JUDGED) {
            let runs: Vec<Run> =
                threads.install(|| paths.into_par_iter().map(|path| judge(tables, path)).collect());
            for (run, path) in runs.into_iter().zip(paths) {
                extent.runs += 1;
                match run {
                    Run::Sound => {}
                    Run::Unknown => extent.unknown += 1,
                    Run::Violating => return Some(End::Found(path.clone())),
                }
            }
            if !(self.progress)(extent) {
                return Some(End::Interrupted);
            }
        }
        None
    }

    /// Drops the contents of process states that do not occur in the level, if the contents of too many are
    /// kept. The search rarely needs them again: the effects that it has yet to compute are usually effects
    /// on process states of the level.
    fn drop_contents(&mut self, level: &States) {
        if self.tables.contents() <= self.most_contents {
            return;
        }
        let mut occurs = vec![false; self.tables.locals.len()];
        for place in 0..level.len() {
            State::locals(level.get(place).0).iter().for_each(|it| occurs[*it as usize] = true);
        }
        self.tables.retain(|it| occurs[it as usize]);
        self.most_contents = self.most_contents.max(2 * self.tables.contents());
    }

    /// Finds the states that follow some states of a level.
    fn follow(&self, level: &States, batch: Range<usize>) -> Vec<Following> {
        let Search { bounds, is_reduced, threads, tables, visited, .. } = self;
        let limits = (bounds, *is_reduced);
        threads.install(|| chunks(batch).map(|it| follow(level, it, visited, limits, tables)).collect())
    }
}

/// Finds the states that follow those of a chunk and have not been visited.
fn follow(
    level: &States,
    chunk: Range<usize>,
    visited: &Visited,
    (bounds, is_reduced): (&Bounds, bool),
    tables: &Tables,
) -> Following {
    let mut following = Following::default();
    let (mut state, mut next, mut choices) = (State::default(), State::default(), Choices::default());
    let (mut words, mut performed) = (Vec::new(), Vec::new());
    for place in chunk {
        let (written, asleep) = level.get(place);
        state.read(written);
        state.find_choices(bounds, tables, &mut choices);
        performed.clear();
        performed.extend_from_slice(asleep);
        for &choice in &choices.all {
            let action = is_reduced.then(|| Action::new(choice, &state, &choices, tables));
            if action.is_some_and(|it| performed.contains(&it)) {
                continue;
            }
            next.copy_from(&state);
            next.perform(choice, &choices, tables, &mut ());
            following.steps += 1;
            let key = next.key(tables, &mut words);
            if !visited.contains(key) {
                following.shards[shard(key)].push(following.reached.len() as u32);
                following.reached.push((key, place, choice, next.left.is_used_up()));
                words.clear();
                next.write(&mut words);
                let asleep = performed
                    .iter()
                    .copied()
                    .filter(|it| action.is_some_and(|action| it.is_independent(action)));
                following.states.push(&words, asleep);
            }
            // A choice that ends the run depends on all others.
            performed.extend(action.filter(|_| !next.has_ended()));
        }
    }
    following
}

/// Divides a range into chunks, each for one thread.
fn chunks(range: Range<usize>) -> impl IndexedParallelIterator<Item = Range<usize>> {
    let Range { start, end } = range;
    let count = (end - start).div_ceil(CHUNK);
    (0..count).into_par_iter().map(move |it| start + it * CHUNK..end.min(start + (it + 1) * CHUNK))
}

/// Returns the choices that lead to a state.
fn path(steps: &[Step], mut place: u32) -> Vec<Choice> {
    let mut path = Vec::new();
    while let Some(step) = steps.get(place as usize) {
        path.push(step.choice);
        place = step.from;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use faultline_api::resource::Family;
    use faultline_core::Time;

    use super::*;
    use crate::bounds::Storage;
    use crate::federation::names;

    const BOUNDS: Bounds = Bounds {
        crashes: 1,
        timers: 1,
        overtakings: Some(0),
        storage: Storage::Any,
        permanent: false,
        states: 1_000_000,
    };

    /// The rest of a run depends on the states of the processes, which may differ although the same facts were
    /// reported.
    #[test]
    fn quiet_states_with_the_same_facts_and_different_deadlines_are_both_judged() {
        let subject = Subject::small("hc3i", 2, "0>1,1>0");
        let tables = subject.tables();
        let first = subject.begun(&BOUNDS, &tables, &mut ());
        let (mut facts, mut quiet, mut words) = (HashSet::new(), HashSet::new(), Vec::new());
        let mut visited = HashSet::from([first.key(&tables, &mut words)]);
        let (mut rest, mut choices) = (vec![first], Choices::default());
        while let Some(state) = rest.pop() {
            if state.is_quiet(&tables, &mut choices) {
                let deadlines: Vec<Option<Time>> = state.deadlines(&tables).collect();
                facts.insert(state.facts_key(&tables));
                quiet.insert((state.facts_key(&tables), (!state.has_ended()).then_some(deadlines)));
            }
            state.find_choices(&BOUNDS, &tables, &mut choices);
            for &choice in &choices.all {
                let mut next = State::default();
                next.copy_from(&state);
                next.perform(choice, &choices, &tables, &mut ());
                if visited.insert(next.key(&tables, &mut words)) {
                    rest.push(next);
                }
            }
        }
        let progress = &mut |_: &_| true;
        let mut search = Search::new(&subject, BOUNDS, 2, &|_, _| Run::Sound, progress);
        assert!(matches!(search.run(), End::Exhausted));
        let SearchExtent { states, runs, .. } = search.extent;
        assert_eq!(states, visited.len() as u64);
        assert!(quiet.len() > facts.len(), "{} {}", quiet.len(), facts.len());
        assert!(runs >= quiet.len() as u64, "{runs} {}", quiet.len());
    }

    /// The result of a search with one thread.
    #[derive(Debug, PartialEq)]
    struct Searched {
        extent: SearchExtent,
        /// The choices that lead to all complete runs.
        paths: Vec<Choice>,
        /// The keys of all states.
        visited: HashSet<Key>,
    }

    /// Runs a search that `change` has modified. Returns the result and the number of process states whose
    /// contents were kept.
    fn searched(subject: &Subject, bounds: Bounds, change: impl FnOnce(&mut Search)) -> (Searched, usize) {
        let paths = Mutex::new(Vec::new());
        let judge = |_: &Tables, path: &[Choice]| {
            paths.lock().unwrap().extend_from_slice(path);
            Run::Sound
        };
        let progress = &mut |_: &_| true;
        let mut search = Search::new(subject, bounds, 1, &judge, progress);
        change(&mut search);
        search.run();
        let (extent, kept) = (search.extent, search.tables.contents());
        let visited = search.visited.0.into_iter().flatten().collect();
        (Searched { extent, paths: paths.into_inner().unwrap(), visited }, kept)
    }

    /// With and without the reduction, every state is reached by the same run, so the search finds the same
    /// violations.
    #[test]
    fn the_reduction_omits_steps_and_changes_no_result() {
        for protocol in names() {
            let subject = Subject::small(protocol, 2, "0>1");
            let of_tasks = subject.family == Family::Tasks;
            let bounds = Bounds {
                overtakings: None,
                timers: u32::from(of_tasks),
                storage: Storage::Kept,
                permanent: of_tasks,
                states: 20_000,
                ..BOUNDS
            };
            let (full, _) = searched(&subject, bounds, |it| it.is_reduced = false);
            let (mut reduced, _) = searched(&subject, bounds, |it| assert!(it.is_reduced));
            println!("{protocol}: {:?}, {} steps if reduced", full.extent, reduced.extent.steps);
            assert!(reduced.extent.steps < full.extent.steps, "{protocol}");
            reduced.extent.steps = full.extent.steps;
            assert!(reduced == full, "{protocol}");
        }
    }

    #[test]
    fn dropped_contents_change_no_result() {
        for protocol in names() {
            let subject = Subject::small(protocol, 2, "0>1,1>0");
            let bounds = Bounds { permanent: subject.family == Family::Tasks, states: 10_000, ..BOUNDS };
            for bounds in [bounds, Bounds { overtakings: None, ..bounds }] {
                let (kept, all) = searched(&subject, bounds, |it| it.most_contents = usize::MAX);
                let (dropped, rest) = searched(&subject, bounds, |it| it.most_contents = 0);
                println!("{protocol}: {:?}, {rest} of {all} contents remain", kept.extent);
                assert!(rest < all, "{protocol}: {rest} of {all}");
                assert!(dropped == kept, "{protocol}");
            }
        }
    }
}
