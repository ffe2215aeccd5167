//! The application of an exploration: a few messages in a fixed order.
//!
//! Each rank goes through the program in order: it sends its own messages, and waits for those that other
//! ranks send to it. A send may depend on all earlier receipts of its rank, and is the same in every
//! re-execution. The exploration chooses the time of each send. A rank without messages computes once and then
//! finishes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use faultline_core::application::Job;
use faultline_core::{
    Application, Chunk, Digest, Incarnation, Membership, Outbox, Payload, ProcessId, Progress, Role, Span,
};

/// Messages as (sender, receiver) pairs, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Arc<[(ProcessId, ProcessId)]>);

/// The error for a string that is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a program; write each message as the numbers of two different ranks, as in `0>2,2>0`")]
pub struct InvalidProgram(String);

impl Program {
    /// Returns a program of `messages` messages for clusters of `nodes` ranks. If clusters have several ranks, every
    /// third message stays within a cluster. The other messages go from cluster to cluster, in a ring. A single cluster
    /// has only messages within it.
    pub fn usual(clusters: u32, nodes: u32, messages: u32) -> Program {
        let ranks = clusters * nodes;
        let mut at = 0;
        let pairs = (0..messages).map(|number| {
            let is_within = clusters == 1 || number % 3 == 2 && nodes > 1;
            let to = match is_within {
                true => at / nodes * nodes + (at + 1) % nodes,
                false => (at / nodes + 1) % clusters * nodes,
            };
            let pair = (ProcessId(at), ProcessId(to));
            at = to % ranks;
            pair
        });
        Program(pairs.collect())
    }

    /// Iterates over all programs of `messages` messages for `ranks` ranks.
    pub fn all(ranks: u32, messages: u32) -> impl Iterator<Item = Program> {
        let pairs: Arc<[(ProcessId, ProcessId)]> = (0..ranks)
            .flat_map(|from| (0..ranks).map(move |to| (ProcessId(from), ProcessId(to))))
            .filter(|(from, to)| from != to)
            .collect();
        let count = pairs.len().pow(messages);
        (0..count).map(move |number| {
            let digit = |place| number / pairs.len().pow(place) % pairs.len();
            Program((0..messages).map(|place| pairs[digit(place)]).collect())
        })
    }

    /// Returns the largest rank in the program; `None` if there are no messages.
    pub fn largest_rank(&self) -> Option<ProcessId> {
        self.0.iter().flat_map(|&(from, to)| [from, to]).max()
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of steps of a rank.
    fn total(&self, rank: ProcessId) -> u32 {
        self.of(rank).count().max(1) as u32
    }

    /// Iterates over the messages that a rank sends or receives, by their position in the program.
    fn of(&self, rank: ProcessId) -> impl Iterator<Item = (u32, ProcessId, ProcessId)> + '_ {
        let all = (0..).zip(self.0.iter()).map(|(place, &(from, to))| (place, from, to));
        all.filter(move |&(_, from, to)| from == rank || to == rank)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (from, to)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{}>{}", from.0, to.0)?;
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = InvalidProgram;

    fn from_str(text: &str) -> Result<Program, InvalidProgram> {
        let message = |text: &str| {
            let (from, to) = text.split_once('>')?;
            let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            (from != to).then_some((ProcessId(from), ProcessId(to)))
        };
        let messages: Option<_> = text.split(',').map(message).collect();
        messages.map(Program).ok_or_else(|| InvalidProgram(text.to_owned()))
    }
}

/// One rank of a program.
#[derive(Clone, Debug)]
pub struct Rank {
    program: Arc<Program>,
    me: ProcessId,
    /// The number of this rank's messages that it has sent or consumed; for a rank without messages, 1 once it has
    /// computed.
    done: u32,
    /// Positions of messages that arrived early, ascending.
    early: Vec<u32>,
}

/// Represents the computation of a rank that has no messages, in place of the position of a message.
const NO_MESSAGE: u32 = u32::MAX;

/// The job that sends the message at this position in the program.
#[derive(Clone, Debug, PartialEq)]
pub struct SendMessage(u32);

impl Job for SendMessage {
    type Output = u32;

    fn cost(&self) -> Span {
        Span::ZERO
    }

    fn run(self) -> u32 {
        self.0
    }
}

impl Rank {
    fn next(&self) -> Option<(u32, ProcessId, ProcessId)> {
        self.program.of(self.me).nth(self.done as usize)
    }

    /// Consumes early messages that are next in order.
    fn advance(&mut self, out: &mut Outbox) {
        while let Some((place, from, to)) = self.next()
            && to == self.me
            && let Ok(index) = self.early.binary_search(&place)
        {
            self.early.remove(index);
            let earlier = self.program.0[..place as usize].iter().filter(|&&it| it == (from, to));
            out.consume(from, earlier.count() as u32);
            self.done += 1;
        }
    }
}

impl Application for Rank {
    type Job = SendMessage;
    type Config = Program;

    fn new(program: &Arc<Program>, me: ProcessId, _: &Membership, _: u64) -> Rank {
        Rank { program: program.clone(), me, done: 0, early: Vec::new() }
    }

    fn deliver(&mut self, _: ProcessId, payload: Payload, out: &mut Outbox) {
        let place = payload.bytes().try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
        let index = self.early.partition_point(|&it| it < place);
        self.early.insert(index, place);
        self.advance(out);
    }

    fn computed(&mut self, place: u32, out: &mut Outbox) {
        if place == NO_MESSAGE {
            self.done = 1;
        } else if let Some((next, from, to)) = self.next()
            && (next, from) == (place, self.me)
        {
            out.send(to, Payload::from_slice(&place.to_le_bytes()));
            self.done += 1;
            self.advance(out);
        }
    }

    fn next_job(&mut self) -> Option<SendMessage> {
        match self.next() {
            Some((place, from, _)) if from == self.me => Some(SendMessage(place)),
            None if self.done < self.program.total(self.me) => Some(SendMessage(NO_MESSAGE)),
            _ => None,
        }
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        let numbers = std::iter::once(self.done).chain(self.early.iter().copied());
        let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        Some([Chunk::Bytes(bytes.into())].into())
    }

    fn restore(&mut self, chunks: Option<&[Chunk]>, _: Incarnation) {
        let bytes = match chunks {
            Some([Chunk::Bytes(bytes)]) => &bytes[..],
            _ => &[0; 4],
        };
        let mut numbers = bytes.chunks_exact(4).map(|it| u32::from_le_bytes(it.try_into().expect("4 bytes")));
        self.done = numbers.next().unwrap_or_default();
        self.early = numbers.collect();
    }

    fn result(&self) -> Option<Digest> {
        (self.done >= self.program.total(self.me)).then(|| digest(self.done, &self.early))
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done.into(), total: self.program.total(self.me).into() }
    }

    fn reference(
        program: &Arc<Program>,
        membership: &Membership,
        _: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        let result = |rank| (rank, digest(program.total(rank), &[]));
        Some(membership.with_role(Role::RANK).map(result).collect())
    }
}

/// Returns the result of a rank. A message that arrived but was not consumed changes the result.
fn digest(done: u32, early: &[u32]) -> Digest {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&done.to_le_bytes());
    let rest = early.iter().fold(early.len() as u64, |sum, &it| sum.wrapping_mul(31).wrapping_add(it.into()));
    bytes[8..].copy_from_slice(&rest.to_le_bytes());
    Digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_it_is_written() {
        let program: Program = "0>2, 2>0,0>1".parse().unwrap();
        assert_eq!(program.to_string(), "0>2,2>0,0>1");
        for wrong in ["", "0>0", "0-2", "0>2,"] {
            assert!(wrong.parse::<Program>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_are_counted() {
        assert_eq!(Program::usual(2, 2, 3).to_string(), "0>2,2>0,0>1");
        assert_eq!(Program::usual(2, 1, 3).to_string(), "0>1,1>0,0>1");
        assert_eq!(Program::usual(1, 2, 2).to_string(), "0>1,1>0");
        assert_eq!(Program::all(2, 3).count(), 8);
        assert_eq!(Program::all(3, 2).count(), 36);
    }

    #[test]
    fn a_rank_without_messages_finishes() {
        let program = Arc::new("1>2".parse::<Program>().unwrap());
        let mut rank = Rank { program, me: ProcessId(0), done: 0, early: Vec::new() };
        let (job, mut out) = (rank.next_job().unwrap(), Outbox::default());
        assert_eq!(rank.result(), None);
        rank.computed(job.run(), &mut out);
        assert_eq!((rank.result(), rank.next_job()), (Some(digest(1, &[])), None));
        assert!(out.sends.is_empty());
    }

    #[test]
    fn a_rank_waits_for_earlier_messages_and_a_duplicate_changes_its_result() {
        let program = Arc::new("1>0,0>1".parse::<Program>().unwrap());
        let mut rank = Rank { program, me: ProcessId(0), done: 0, early: Vec::new() };
        assert_eq!(rank.next_job(), None);
        let (mut out, first) = (Outbox::default(), Payload::from_slice(&0_u32.to_le_bytes()));
        rank.deliver(ProcessId(1), first.clone(), &mut out);
        assert_eq!(rank.next_job(), Some(SendMessage(1)));
        rank.computed(1, &mut out);
        assert_eq!((out.sends.len(), out.consumed.len()), (1, 1));
        let saved = rank.snapshot();
        let result = rank.result().unwrap();
        rank.deliver(ProcessId(1), first, &mut out);
        assert_ne!(rank.result(), Some(result));
        rank.restore(saved.as_deref(), Incarnation(1));
        assert_eq!(rank.result(), Some(result));
    }
}
