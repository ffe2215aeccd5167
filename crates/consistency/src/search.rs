//! The search for an order of the operations on one object that explains their answers.
//!
//! The search is that of Wing and Gong with the memory of Lowe: it takes one operation after the other, and backtracks
//! where none is possible. It differs from the published form in the following rules, each of which leaves the verdict
//! unchanged:
//!
//! 1. The next operation is the one that returns first; else one after which that one is possible; unknown ones are last.
//!    This is only an order.
//! 2. An observation that is possible is taken at once: it changes no state, so it fits in front of any continuation.
//! 3. A state must not be left for good while a known operation still needs it.
//! 4. A configuration is the first missing return, the pending operations that are done, the state, and the unknown
//!    operations used. It needs no bit for each operation.
//! 5. Only configurations that failed are remembered, once the search leaves them.
//! 6. A configuration fails if one failed that had used a subset of its unknown operations, which may be left out.
//! 7. Of unknown operations with the same effect, only the first called is tried.
//! 8. The operation after an unknown one must depend on it. Otherwise, the branch without the unknown one is as good. So an
//!    unknown operation is tried only if one that may be next depends on it.
//! 9. Of the unknown operations that a failed configuration had used, only those that it lacked are remembered: it would
//!    have failed without the others as well.

use crate::hash::Map;
use crate::operation::NEVER;

/// The most operations of one object that may be in progress at the same time.
pub(crate) const MOST_PENDING: usize = 128;

/// The times of an operation. `ret` is [`NEVER`] if its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) call: u64,
    pub(crate) ret: u64,
}

/// An object with operations, which are numbered from 0. States are numbers less than [`Object::states`].
pub(crate) trait Object {
    /// Returns the first state.
    fn initial(&self) -> u32;
    /// Returns the number of states.
    fn states(&self) -> usize;
    /// Returns the state after the operation, or `None` if it cannot have had its answer in this state.
    fn step(&self, state: u32, operation: usize) -> Option<u32>;
    /// Returns whether the operation never changes any state.
    fn observes(&self, operation: usize) -> bool;
    /// Returns a number that is the same for operations with the same effect on each state, whatever their answers.
    fn effect(&self, operation: usize) -> u64;
    /// Returns the only state that the operation may change, if there is only one.
    fn changes(&self, operation: usize) -> Option<u32>;
    /// Returns the only state in which the operation is possible, if there is only one.
    fn needs(&self, operation: usize) -> Option<u32>;
    /// Calls `each` with all states that the operation may lead to, if it may change the state.
    fn makes(&self, operation: usize, each: impl FnMut(u32));
}

/// How much a search may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) steps: u64,
    pub(crate) bytes: usize,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This order explains all answers. Operations that it lacks are unknown ones that had no effect.
    Order(Vec<u32>),
    /// No order explains the answers.
    Nothing,
    /// The steps were used up.
    OutOfSteps,
    /// More than [`MOST_PENDING`] operations were in progress at the same time.
    TooMany,
}

/// A key of failed configurations: the rank of the first missing return, the state, the state before an unknown
/// operation on which the next one must depend, and the pending operations done.
type Place = (u32, u32, Option<u32>, u128);

/// The most words of bits for unknown operations with which rule 9 and the second half of rule 8 are applied.
const MOST_WORDS: usize = 4;

/// The number of comparisons with failed configurations that count as one step.
const COMPARISONS: u64 = 64;

/// Failed configurations, with the sets of unknown operations that they lacked.
struct Failed {
    heads: Map<Place, u32>,
    sets: Vec<u64>,
    next: Vec<u32>,
    words: usize,
    bytes: usize,
    compared: u64,
}

const NONE: u32 = u32::MAX;

impl Failed {
    fn new(words: usize, bytes: usize) -> Failed {
        Failed { heads: Map::default(), sets: Vec::new(), next: Vec::new(), words, bytes, compared: 0 }
    }

    /// Returns the set of a configuration that failed because it lacked a subset of `used`.
    fn covering(&mut self, place: Place, used: &[u64]) -> Option<&[u64]> {
        let &head = self.heads.get(&place)?;
        let mut at = head;
        while self.words > 0 {
            if at == NONE {
                return None;
            }
            self.compared += 1;
            let set = &self.sets[at as usize * self.words..][..self.words];
            if set.iter().zip(used).all(|(failed, used)| failed & !used == 0) {
                return Some(&self.sets[at as usize * self.words..][..self.words]);
            }
            at = self.next[at as usize];
        }
        Some(&[])
    }

    /// Remembers a configuration. If the memory is full, forgets all others first, which costs only time.
    fn insert(&mut self, place: Place, lacked: &[u64]) {
        if self.heads.len() * 64 + self.sets.len() * 8 + self.next.len() * 4 > self.bytes {
            (self.heads, self.sets, self.next) = (Map::default(), Vec::new(), Vec::new());
        }
        if self.words == 0 {
            self.heads.insert(place, NONE);
            return;
        }
        let head = self.heads.entry(place).or_insert(NONE);
        self.next.push(*head);
        *head = self.next.len() as u32 - 1;
        self.sets.extend_from_slice(lacked);
    }
}

/// A doubly linked list of operations, from which operations are lifted and put back in reverse order. The last index
/// is the sentinel.
struct List {
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl List {
    fn new(n: usize, order: &[u32]) -> List {
        let mut list = List { next: vec![n as u32; n + 1], prev: vec![n as u32; n + 1] };
        let mut last = n as u32;
        for &it in order {
            list.next[last as usize] = it;
            list.prev[it as usize] = last;
            last = it;
        }
        list.prev[n] = last;
        list
    }

    fn first(&self) -> u32 {
        self.next[self.next.len() - 1]
    }

    fn lift(&mut self, it: u32) {
        let (prev, next) = (self.prev[it as usize], self.next[it as usize]);
        self.next[prev as usize] = next;
        self.prev[next as usize] = prev;
    }

    fn put(&mut self, it: u32) {
        let (prev, next) = (self.prev[it as usize], self.next[it as usize]);
        self.next[prev as usize] = it;
        self.prev[next as usize] = it;
    }
}

/// Where to look for the next operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// An observation that is possible now.
    Observation,
    /// The operation that returns first.
    First,
    /// One after which that is possible, with a known outcome.
    HelpfulKnown,
    /// Any other with a known outcome.
    OtherKnown,
    /// One after which the operation that returns first is possible, with an unknown outcome. Unknown operations come
    /// last, so that configurations fail first with few of them used, which covers those with more.
    HelpfulUnknown,
    /// Any other with an unknown outcome.
    OtherUnknown,
}

/// A choice on the search's path, with the configuration before it.
struct Choice {
    operation: u32,
    /// Whether other choices must not be tried: an observation.
    is_forced: bool,
    phase: Phase,
    before: Configuration,
}

#[derive(Clone, Copy)]
struct Configuration {
    /// The rank of the first missing return.
    first: u32,
    /// The slots of pending operations that are done.
    done: u128,
    state: u32,
}

impl Configuration {
    const fn place(self, unless: Option<u32>) -> Place {
        (self.first, self.state, unless, self.done)
    }
}

/// The state of a search.
struct Search<'a, O> {
    object: &'a O,
    spans: &'a [Span],
    /// The known operations, by return, and the rank of each.
    by_return: Vec<u32>,
    rank: Vec<u32>,
    /// Operations that are in progress at the same time have different slots.
    slot: Vec<u8>,
    /// The unknown operations by number, the number of each, and their classes of equal effects.
    by_bit: Vec<u32>,
    bit: Vec<u32>,
    class: Vec<u32>,
    /// For each class, its operations by call, and how many of them were used.
    classes: Vec<Vec<u32>>,
    used_of: Vec<u32>,
    /// The classes that may change any state, and those that may change only one, by state; and the place of each.
    general: Vec<u32>,
    special: Map<u32, Vec<u32>>,
    place: Vec<u32>,
    /// The known operations that are missing, by call and by return.
    calls: List,
    returns: List,
    used: Vec<u64>,
    /// For each state, the number of missing known operations that need it, and of missing ones that can make it.
    needed: Vec<u32>,
    makers: Vec<u32>,
    at: Configuration,
    path: Vec<Choice>,
    /// For each configuration on the path, and the last one, the unknown operations whose use made it fail so far.
    lacked: Vec<u64>,
    failed: Failed,
    /// Whether an unknown operation depends on a change from a state to another.
    links: Map<(u32, u32), bool>,
}

/// Looks for an order of the operations that explains their answers. Adds the steps taken to `steps`.
pub(crate) fn search<O: Object>(object: &O, spans: &[Span], allowance: Allowance, steps: &mut u64) -> Found {
    let Some(mut search) = Search::new(object, spans, allowance.bytes) else { return Found::TooMany };
    search.run(allowance.steps, steps)
}

impl<'a, O: Object> Search<'a, O> {
    /// Returns `None` if too many operations are in progress at the same time.
    fn new(object: &'a O, spans: &'a [Span], bytes: usize) -> Option<Search<'a, O>> {
        let n = spans.len();
        let is_known = |it: &u32| spans[*it as usize].ret != NEVER;
        let mut by_call: Vec<u32> = (0..n as u32).filter(is_known).collect();
        by_call.sort_by_key(|&it| spans[it as usize].call);
        let mut by_return = by_call.clone();
        by_return.sort_by_key(|&it| spans[it as usize].ret);
        let mut unknown: Vec<u32> =
            (0..n as u32).filter(|it| !is_known(it) && !object.observes(*it as usize)).collect();
        unknown.sort_by_key(|&it| spans[it as usize].call);
        let mut rank = vec![0; n];
        for (at, &it) in by_return.iter().enumerate() {
            rank[it as usize] = at as u32;
        }
        let slot = slots(spans, &by_call, &by_return)?;
        let (mut bit, mut class) = (vec![0; n], vec![0; n]);
        let (mut numbers, mut classes): (Map<u64, u32>, Vec<Vec<u32>>) = (Map::default(), Vec::new());
        for (number, &it) in unknown.iter().enumerate() {
            bit[it as usize] = number as u32;
            let number = *numbers.entry(object.effect(it as usize)).or_insert_with(|| {
                classes.push(Vec::new());
                classes.len() as u32 - 1
            });
            class[it as usize] = number;
            classes[number as usize].push(it);
        }
        let (mut general, mut special): (Vec<u32>, Map<u32, Vec<u32>>) = (Vec::new(), Map::default());
        let mut place = Vec::with_capacity(classes.len());
        for (number, operations) in classes.iter().enumerate() {
            let list = match object.changes(operations[0] as usize) {
                None => &mut general,
                Some(state) => special.entry(state).or_default(),
            };
            place.push(list.len() as u32);
            list.push(number as u32);
        }
        let (mut needed, mut makers) = (vec![0; object.states()], vec![0; object.states()]);
        for &it in by_call.iter().chain(&unknown) {
            object.makes(it as usize, |state| makers[state as usize] += 1);
            if let (true, Some(state)) = (is_known(&it), object.needs(it as usize)) {
                needed[state as usize] += 1;
            }
        }
        let words = unknown.len().div_ceil(64);
        Some(Search {
            object,
            spans,
            calls: List::new(n, &by_call),
            returns: List::new(n, &by_return),
            by_bit: unknown,
            by_return,
            rank,
            slot,
            bit,
            class,
            used_of: vec![0; classes.len()],
            classes,
            general,
            special,
            place,
            used: vec![0; words],
            needed,
            makers,
            at: Configuration { first: 0, done: 0, state: object.initial() },
            path: Vec::new(),
            lacked: vec![0; if words > MOST_WORDS { 0 } else { words }],
            failed: Failed::new(words, bytes),
            links: Map::default(),
        })
    }

    fn run(&mut self, budget: u64, steps: &mut u64) -> Found {
        let mut from = (Phase::Observation, None);
        let end = *steps + budget;
        loop {
            if self.at.first as usize == self.by_return.len() {
                return Found::Order(self.path.iter().map(|it| it.operation).collect());
            }
            *steps += self.failed.compared / COMPARISONS;
            self.failed.compared %= COMPARISONS;
            if *steps >= end {
                *steps = end;
                return Found::OutOfSteps;
            }
            *steps += 1;
            if let Some((operation, state, phase)) = self.choose(from) {
                let left = self.at.state;
                self.take(operation, state, phase);
                if phase == Phase::Observation || !self.is_stranded(left) && !self.has_failed() {
                    from = (Phase::Observation, None);
                    continue;
                }
            } else {
                self.fail();
            }
            let Some((operation, phase)) = self.undo() else { return Found::Nothing };
            from = (phase, Some(operation));
        }
    }

    /// Rule 8: returns the state before the last operation, if its outcome is unknown.
    fn before_unknown(&self) -> Option<u32> {
        let last = self.path.last().filter(|it| self.spans[it.operation as usize].ret == NEVER);
        last.map(|it| it.before.state)
    }

    /// Returns whether a known operation needs the state that was left, and no missing operation leads to it.
    fn is_stranded(&mut self, left: u32) -> bool {
        let is_stranded =
            self.at.state != left && self.needed[left as usize] > 0 && self.makers[left as usize] == 0;
        if is_stranded && !self.lacked.is_empty() {
            for it in self.used_operations() {
                let mut makes_left = false;
                self.object.makes(it as usize, |state| makes_left |= state == left);
                if makes_left {
                    self.lack(it);
                }
            }
        }
        is_stranded
    }

    /// Returns whether the configuration has failed before.
    fn has_failed(&mut self) -> bool {
        let unless = self.before_unknown();
        for unless in [None, unless].into_iter().take(if unless.is_some() { 2 } else { 1 }) {
            if let Some(set) = self.failed.covering(self.at.place(unless), &self.used) {
                if !self.lacked.is_empty() {
                    let row = self.lacked.len() - set.len();
                    self.lacked[row..].iter_mut().zip(set).for_each(|(row, set)| *row |= set);
                }
                return true;
            }
        }
        false
    }

    /// Remembers that the configuration fails. Returns to the one before the last observations, which fails as well.
    fn fail(&mut self) {
        if self.lacked.is_empty() {
            while self.path.last().is_some_and(|it| it.is_forced) {
                self.undo();
            }
            self.failed.insert(self.at.place(self.before_unknown()), &self.used);
            return;
        }
        // It lacked the operations that are not there, although another one depends on them.
        let limit = self.spans[self.returns.first() as usize].ret;
        for it in self.used_operations() {
            if self.available(self.class[it as usize], limit).is_none()
                && let Some(result) = self.object.step(self.at.state, it as usize)
                && result != self.at.state
                && self.is_useful(result)
            {
                self.lack(it);
            }
        }
        while self.path.last().is_some_and(|it| it.is_forced) {
            self.undo();
        }
        let row = self.lacked.len() - self.used.len();
        let mut lacked = [0; MOST_WORDS];
        for (at, used) in self.used.iter().enumerate() {
            lacked[at] = self.lacked[row + at] & used;
        }
        self.failed.insert(self.at.place(self.before_unknown()), &lacked[..self.used.len()]);
    }

    /// Returns the unknown operations that were used.
    fn used_operations(&self) -> Vec<u32> {
        let bits = 0..self.by_bit.len();
        let used = bits.filter(|it| self.used[it / 64] >> (it % 64) & 1 == 1);
        used.map(|it| self.by_bit[it]).collect()
    }

    /// Rule 7: returns the first called operation of a class that was not used, if it was called by then.
    fn available(&self, class: u32, limit: u64) -> Option<u32> {
        let next = self.classes[class as usize].get(self.used_of[class as usize] as usize);
        next.copied().filter(|it| self.spans[*it as usize].call <= limit)
    }

    /// Notes that the use of an unknown operation makes the configuration fail.
    fn lack(&mut self, operation: u32) {
        let row = self.lacked.len() - self.used.len();
        let bit = self.bit[operation as usize] as usize;
        self.lacked[row + bit / 64] |= 1 << (bit % 64);
    }

    /// Returns whether an operation that may be next depends on a change to the state `result`. Unknown operations count
    /// even if they were used or are not called yet, so that this depends only on the place.
    fn is_useful(&mut self, result: u32) -> bool {
        let (object, state) = (self.object, self.at.state);
        let depends = |it: u32| {
            let next = object.step(result, it as usize);
            next.is_some() && next != object.step(state, it as usize)
        };
        let limit = self.spans[self.returns.first() as usize].ret;
        let mut it = self.calls.first();
        while (it as usize) < self.spans.len() && self.spans[it as usize].call <= limit {
            if depends(it) {
                return true;
            }
            it = self.calls.next[it as usize];
        }
        let classes = &self.classes;
        *self.links.entry((state, result)).or_insert_with(|| {
            let mut all = classes.iter().map(|it| it[0]);
            all.any(|it| depends(it) && object.step(result, it as usize) != Some(result))
        })
    }

    /// Returns the next choice after `from`: the operation, the state after it, and the phase.
    fn choose(&mut self, from: (Phase, Option<u32>)) -> Option<(u32, u32, Phase)> {
        let (mut phase, mut after) = from;
        let (object, state) = (self.object, self.at.state);
        let sentinel = self.spans.len() as u32;
        let target = self.returns.first();
        let limit = self.spans[target as usize].ret;
        if phase == Phase::Observation {
            let mut it = self.calls.first();
            while it != sentinel && self.spans[it as usize].call <= limit {
                if object.observes(it as usize) && object.step(state, it as usize).is_some() {
                    return Some((it, state, Phase::Observation));
                }
                it = self.calls.next[it as usize];
            }
            (phase, after) = (Phase::First, None);
        }
        let before = self.before_unknown();
        let depends = |it: u32, result: u32| {
            before.is_none_or(|before| object.step(before, it as usize) != Some(result))
        };
        if phase == Phase::First {
            if after.is_none()
                && !object.observes(target as usize)
                && let Some(result) = object.step(state, target as usize)
                && depends(target, result)
            {
                return Some((target, result, Phase::First));
            }
            (phase, after) = (Phase::HelpfulKnown, None);
        }
        loop {
            let is_helpful = matches!(phase, Phase::HelpfulKnown | Phase::HelpfulUnknown);
            if matches!(phase, Phase::HelpfulUnknown | Phase::OtherUnknown) {
                let general = self.general.len();
                let special = self.special.get(&state).map_or(0, Vec::len);
                let first = after.map_or(0, |after| {
                    let class = self.class[after as usize] as usize;
                    let is_general = object.changes(after as usize).is_none();
                    self.place[class] as usize + 1 + if is_general { 0 } else { general }
                });
                for at in first..general + special {
                    let class = match at < general {
                        true => self.general[at],
                        false => self.special[&state][at - general],
                    };
                    if let Some(it) = self.available(class, limit)
                        && let Some(result) = object.step(state, it as usize)
                        && result != state
                        && depends(it, result)
                        && object.step(result, target as usize).is_some() == is_helpful
                        && (self.lacked.is_empty() || self.is_useful(result))
                    {
                        return Some((it, result, phase));
                    }
                }
            } else {
                let mut it = after.map_or(self.calls.first(), |after| self.calls.next[after as usize]);
                while it != sentinel && self.spans[it as usize].call <= limit {
                    if it != target
                        && !object.observes(it as usize)
                        && let Some(result) = object.step(state, it as usize)
                        && depends(it, result)
                        && object.step(result, target as usize).is_some() == is_helpful
                    {
                        return Some((it, result, phase));
                    }
                    it = self.calls.next[it as usize];
                }
            }
            after = None;
            phase = match phase {
                Phase::HelpfulKnown => Phase::OtherKnown,
                Phase::OtherKnown => Phase::HelpfulUnknown,
                Phase::HelpfulUnknown => Phase::OtherUnknown,
                _ => return None,
            };
        }
    }

    fn take(&mut self, operation: u32, state: u32, phase: Phase) {
        let (it, before) = (operation as usize, self.at);
        self.object.makes(it, |state| self.makers[state as usize] -= 1);
        self.at.state = state;
        if self.spans[it].ret == NEVER {
            self.used_of[self.class[it] as usize] += 1;
            self.used[self.bit[it] as usize / 64] |= 1 << (self.bit[it] % 64);
        } else {
            if let Some(needed) = self.object.needs(it) {
                self.needed[needed as usize] -= 1;
            }
            let target = self.returns.first();
            self.calls.lift(operation);
            self.returns.lift(operation);
            if operation == target {
                let next = self.returns.first() as usize;
                let first =
                    if next == self.spans.len() { self.by_return.len() as u32 } else { self.rank[next] };
                for &passed in &self.by_return[before.first as usize + 1..first as usize] {
                    self.at.done &= !(1 << self.slot[passed as usize]);
                }
                self.at.first = first;
            } else {
                self.at.done |= 1 << self.slot[it];
            }
        }
        let is_forced = phase == Phase::Observation;
        self.path.push(Choice { operation, is_forced, phase, before });
        if !self.lacked.is_empty() {
            self.lacked.resize(self.lacked.len() + self.used.len(), 0);
        }
    }

    /// Undoes the last choice, and returns its operation and phase.
    fn undo(&mut self) -> Option<(u32, Phase)> {
        let Choice { operation, phase, before, .. } = self.path.pop()?;
        let it = operation as usize;
        self.object.makes(it, |state| self.makers[state as usize] += 1);
        if self.spans[it].ret == NEVER {
            self.used_of[self.class[it] as usize] -= 1;
            self.used[self.bit[it] as usize / 64] &= !(1 << (self.bit[it] % 64));
        } else {
            if let Some(needed) = self.object.needs(it) {
                self.needed[needed as usize] += 1;
            }
            self.returns.put(operation);
            self.calls.put(operation);
        }
        self.at = before;
        if !self.lacked.is_empty() {
            // What made a configuration fail makes the one before it fail.
            let (row, words) = (self.lacked.len() - self.used.len(), self.used.len());
            for at in row..row + words {
                self.lacked[at - words] |= self.lacked[at];
            }
            self.lacked.truncate(row);
        }
        Some((operation, phase))
    }
}

/// Assigns a slot to each known operation, such that operations in progress at the same time have different ones.
/// Returns `None` if there are too few slots.
fn slots(spans: &[Span], by_call: &[u32], by_return: &[u32]) -> Option<Vec<u8>> {
    let mut slot = vec![0; spans.len()];
    let (mut free, mut most, mut returned) = (Vec::new(), 0, 0);
    for &it in by_call {
        while let Some(&earlier) = by_return.get(returned)
            && spans[earlier as usize].ret < spans[it as usize].call
        {
            free.push(slot[earlier as usize]);
            returned += 1;
        }
        slot[it as usize] = match free.pop() {
            Some(slot) => slot,
            None if most == MOST_PENDING => return None,
            None => {
                most += 1;
                (most - 1) as u8
            }
        };
    }
    Some(slot)
}
