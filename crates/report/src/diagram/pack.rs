//! The data of a diagram in a page, of bounded size: messages and checkpoints as variable-length integers, in base64. The
//! page's script (`assets/page/data.js`) unpacks them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{
    CheckpointMark, ClusterLanes, Diagram, Fate, FlippedBit, Injected, MessageLine, Outage, RollbackMark,
    Stretch,
};

/// The maximum number of messages that are drawn as lines. Above it, shades show how many messages there are.
const MOST_LINES: usize = 2500;
/// The number of processes above which a cluster is folded at first: a band shows all its processes.
const MOST_EXPANDED: usize = 24;
/// The maximum number of messages in a page.
const MOST_MESSAGES: usize = 250_000;
/// The maximum number of checkpoints in a page.
const MOST_CHECKPOINTS: usize = 60_000;
/// The maximum number of saved states in a page. Above it, a page has only the period of each checkpoint.
const MOST_MEMBERS: usize = 20_000;
/// The maximum number of columns in which messages are counted.
const COLUMNS: usize = 600;
/// The maximum number of lanes times columns.
const MOST_CELLS: usize = 250_000;
/// The number of kinds of messages that are counted separately: each [`Fate`], between and within clusters.
const KINDS: usize = 10;

/// The data of a diagram in a page. Its serialised form is read by the page's script.
#[derive(Debug, Serialize)]
pub struct PackedDiagram<'a> {
    begin: i64,
    end: i64,
    clusters: &'a [ClusterLanes],
    lanes: &'a [String],
    messages: Packed,
    /// The number of messages in the run.
    total: usize,
    /// The number of messages in the page.
    kept: usize,
    /// The exact numbers of messages; `None` if the page contains all messages.
    counts: Option<Counts>,
    checkpoints: Packed,
    outages: &'a [Outage],
    flips: &'a [FlippedBit],
    recoveries: &'a [Stretch],
    undone: &'a [Stretch],
    rollbacks: &'a [RollbackMark],
    recovery_lines: &'a [Vec<(usize, i64)>],
    faults: &'a [Injected],
    cuts: &'a [(usize, usize, i64, i64)],
    most_lines: usize,
    most_expanded: usize,
    /// Sentences about omitted items.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// How many messages each process sends and receives in each of `columns` periods of equal length.
#[derive(Debug, Serialize)]
struct Counts {
    columns: usize,
    /// Pairs of the number of empty cells before a cell, and its number. Cells are ordered by lane, kind and column.
    cells: Packed,
}

impl<'a> PackedDiagram<'a> {
    /// Packs a diagram, within the limits of a page.
    pub fn new(diagram: &'a Diagram) -> Self {
        Self::within(diagram, MOST_MESSAGES, MOST_CHECKPOINTS)
    }

    /// Returns whether a page shows the messages within clusters at first: not if they turned the lines between clusters
    /// into shades.
    pub fn shows_within(diagram: &Diagram) -> bool {
        let is_line = |it: &&MessageLine| {
            let own = diagram.clusters.iter().rfind(|cluster| cluster.first <= it.from);
            !it.between && own.is_none_or(|cluster| cluster.lanes <= MOST_EXPANDED)
        };
        let within = diagram.messages.iter().filter(is_line).count();
        let between = diagram.messages.iter().filter(|it| it.between).count();
        between == 0 || between > MOST_LINES || between + within <= MOST_LINES
    }

    fn within(diagram: &'a Diagram, most_messages: usize, most_checkpoints: usize) -> Self {
        let is_notable = |it: &MessageLine| it.fate != Fate::Delivered;
        let messages: Vec<_> = selection(&diagram.messages, most_messages, is_notable).collect();
        let is_forced = |it: &CheckpointMark| it.undone;
        let marks: Vec<_> = selection(&diagram.checkpoints, most_checkpoints, is_forced).collect();
        let (total, kept) = (diagram.messages.len(), messages.len());
        let mut notes = Vec::new();
        if kept < total {
            notes.push(format!(
                "The run has {total} messages. The shades count all of them. To draw single messages, this page contains \
                 {kept}: those that were undone, re-sent, dropped or lost, as far as space permits, and an even \
                 selection of the others."
            ));
        }
        if marks.len() < diagram.checkpoints.len() {
            let all = diagram.checkpoints.len();
            notes.push(format!("The diagram shows {} of {all} checkpoints, evenly selected.", marks.len()));
        }
        PackedDiagram {
            begin: diagram.begin,
            end: diagram.end,
            clusters: &diagram.clusters,
            lanes: &diagram.lanes,
            messages: pack_messages(messages, diagram.begin),
            total,
            kept,
            counts: (kept < total).then(|| Counts::new(diagram)),
            checkpoints: pack_checkpoints(&marks, diagram.begin),
            outages: &diagram.outages,
            flips: &diagram.flips,
            recoveries: &diagram.recoveries,
            undone: &diagram.undone,
            rollbacks: &diagram.rollbacks,
            recovery_lines: &diagram.recovery_lines,
            faults: &diagram.faults,
            cuts: &diagram.cuts,
            most_lines: MOST_LINES,
            most_expanded: MOST_EXPANDED,
            notes,
        }
    }
}

/// Returns at most `limit` items in their order: the notable ones as far as nine tenths of the limit permit, and an even
/// selection of the others.
fn selection<T>(items: &[T], limit: usize, is_notable: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
    let notable = items.iter().filter(|it| is_notable(it)).count();
    let plain = items.len() - notable;
    let of_plain = limit.saturating_sub(notable).max(limit / 10).min(plain);
    let rooms = [(of_plain, plain), ((limit - of_plain).min(notable), notable)];
    let mut counts = [0, 0];
    items.iter().filter(move |it| {
        let kind = usize::from(is_notable(it));
        let ((room, all), count) = (rooms[kind], &mut counts[kind]);
        *count += 1;
        // Keep an item whenever `count`, scaled to the available space, reaches the next whole number.
        *count * room / all > (*count - 1) * room / all
    })
}

impl Counts {
    fn new(diagram: &Diagram) -> Counts {
        let columns = (MOST_CELLS / diagram.lanes.len().max(1)).clamp(1, COLUMNS);
        let mut cells = vec![0_u32; diagram.lanes.len() * KINDS * columns];
        let (begin, length) = (i128::from(diagram.begin), i128::from(diagram.end - diagram.begin) + 1);
        let column = |at: i64| {
            let place = (i128::from(at) - begin) * columns as i128 / length;
            place.clamp(0, columns as i128 - 1) as usize
        };
        for it in &diagram.messages {
            let kind = it.fate as usize * 2 + usize::from(!it.between);
            for (lane, at) in [(it.from, Some(it.sent)), (it.to, it.arrived)] {
                if let Some(at) = at {
                    cells[(lane * KINDS + kind) * columns + column(at)] += 1;
                }
            }
        }
        let (mut packed, mut empty) = (Packed::default(), 0);
        for count in cells {
            if count == 0 {
                empty += 1;
            } else {
                packed.number(std::mem::take(&mut empty));
                packed.number(count.into());
            }
        }
        Counts { columns, cells: packed }
    }
}

/// Packs messages, ascending by the time of sending. Each of them is: the time since the previous one; the sender; the
/// receiver, relative to the sender; 0 if it never arrived, otherwise 1 and the time in transit; fate, content and whether
/// its number is the next one of its channel; otherwise, number and incarnation relative to the channel's previous ones.
fn pack_messages<'a>(messages: impl IntoIterator<Item = &'a MessageLine>, begin: i64) -> Packed {
    let (mut packed, mut before) = (Packed::default(), begin);
    let mut channels: BTreeMap<_, (u32, u32)> = BTreeMap::new();
    for it in messages {
        packed.signed(it.sent - std::mem::replace(&mut before, it.sent));
        packed.number(it.from as u64);
        packed.signed(it.to as i64 - it.from as i64);
        packed.number(it.arrived.map_or(0, |at| 1 + zigzag(at - it.sent)));
        let channel = channels.entry((it.from, it.to)).or_default();
        let (next, incarnation) = std::mem::replace(channel, (it.number.wrapping_add(1), it.incarnation));
        let is_next = (next, incarnation) == (it.number, it.incarnation);
        packed.number(it.fate as u64 | (it.content as u64) << 3 | u64::from(is_next) << 5);
        if !is_next {
            packed.signed(i64::from(it.number) - i64::from(next));
            packed.signed(i64::from(it.incarnation) - i64::from(incarnation));
        }
    }
    packed
}

/// Packs checkpoints. Each of them is: the time of its first saved state since that of the previous checkpoint; the time
/// until the last saved state, and from there to the commit; kind and whether it was undone; number and incarnation; the
/// first lane, and the number of lanes up to the last; the number of members, or 0 if there is no space for them; and for
/// each member the lane, relative to the previous one, and the time, relative to the first saved state.
fn pack_checkpoints(marks: &[&CheckpointMark], begin: i64) -> Packed {
    let has_members = marks.iter().map(|it| it.members.len()).sum::<usize>() <= MOST_MEMBERS;
    let (mut packed, mut before) = (Packed::default(), begin);
    for it in marks {
        let (from, upto) = it.period();
        let lanes = || it.members.iter().map(|it| it.0);
        let (first, last) = (lanes().min().unwrap_or(0), lanes().max().unwrap_or(0));
        packed.signed(from - std::mem::replace(&mut before, from));
        packed.signed(upto - from);
        packed.signed(it.committed - upto);
        packed.number(it.kind as u64 | u64::from(it.undone) << 2);
        packed.number(it.position.sn.0.into());
        packed.number(it.position.incarnation.0.into());
        packed.number(first as u64);
        packed.number((last - first) as u64);
        let members = if has_members { &it.members[..] } else { &[] };
        packed.number(members.len() as u64);
        let mut previous = first;
        for &(lane, at) in members {
            packed.number((lane - std::mem::replace(&mut previous, lane)) as u64);
            packed.signed(at - from);
        }
    }
    packed
}

/// Integers of variable length: seven bits per byte, the lowest first; the highest bit is set if another byte follows.
#[derive(Debug, Default)]
struct Packed(Vec<u8>);

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.base64())
    }
}

/// Maps integers to unsigned ones, those near 0 to small ones.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

impl Packed {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn signed(&mut self, value: i64) {
        self.number(zigzag(value));
    }

    fn base64(&self) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::with_capacity(self.0.len().div_ceil(3) * 4);
        for bytes in self.0.chunks(3) {
            let all = bytes.iter().fold(0, |all, &it| all << 8 | u32::from(it)) << (8 * (3 - bytes.len()));
            for place in 0..4 {
                let digit = DIGITS[(all >> (18 - 6 * place) & 63) as usize];
                text.push(if place <= bytes.len() { digit.into() } else { '=' });
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::Position;
    use proptest::prelude::*;

    use super::super::{Content, Kind};
    use super::*;

    /// Reads what [`Packed`] wrote.
    struct Unpacked<'a>(std::slice::Iter<'a, u8>);

    impl Unpacked<'_> {
        fn number(&mut self) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = *self.0.next().expect("a number ends");
                value |= u64::from(byte & 0x7F) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }

        fn signed(&mut self) -> i64 {
            let value = self.number();
            (value >> 1) as i64 ^ -((value & 1) as i64)
        }
    }

    const FATES: [Fate; 5] = [Fate::Delivered, Fate::Undone, Fate::Resent, Fate::Stale, Fate::Lost];
    const CONTENTS: [Content; 3] = [Content::Message, Content::Task, Content::Result];
    const CHECKPOINT_KINDS: [Kind; 3] = [Kind::Initial, Kind::Unforced, Kind::Forced];

    fn unpack_messages(packed: &Packed, begin: i64) -> Vec<MessageLine> {
        let (mut bytes, mut sent, mut lines) = (Unpacked(packed.0.iter()), begin, Vec::new());
        let mut channels: BTreeMap<_, (u32, u32)> = BTreeMap::new();
        while bytes.0.len() > 0 {
            sent += bytes.signed();
            let from = bytes.number() as usize;
            let to = (from as i64 + bytes.signed()) as usize;
            let arrived =
                bytes.number().checked_sub(1).map(|it| sent + ((it >> 1) as i64 ^ -((it & 1) as i64)));
            let kinds = bytes.number() as usize;
            let (mut number, mut incarnation) = channels.get(&(from, to)).copied().unwrap_or_default();
            if kinds >> 5 == 0 {
                number = (i64::from(number) + bytes.signed()) as u32;
                incarnation = (i64::from(incarnation) + bytes.signed()) as u32;
            }
            channels.insert((from, to), (number.wrapping_add(1), incarnation));
            let (fate, content) = (FATES[kinds & 7], CONTENTS[kinds >> 3 & 3]);
            let between = from % 2 != to % 2;
            lines.push(MessageLine { from, to, sent, arrived, fate, between, number, incarnation, content });
        }
        lines
    }

    fn unpack_checkpoints(packed: &Packed, begin: i64) -> Vec<CheckpointMark> {
        let (mut bytes, mut from, mut marks) = (Unpacked(packed.0.iter()), begin, Vec::new());
        while bytes.0.len() > 0 {
            from += bytes.signed();
            let upto = from + bytes.signed();
            let committed = upto + bytes.signed();
            let kind = bytes.number() as usize;
            let (sn, incarnation) = (bytes.number() as u32, bytes.number() as u32);
            let mut lane = bytes.number() as usize;
            let _lanes = bytes.number();
            let members = (0..bytes.number()).map(|_| {
                lane += bytes.number() as usize;
                (lane, from + bytes.signed())
            });
            marks.push(CheckpointMark {
                members: members.collect(),
                committed,
                kind: CHECKPOINT_KINDS[kind & 3],
                position: Position::new(incarnation, sn),
                undone: kind & 4 != 0,
            });
        }
        marks
    }

    fn line() -> impl Strategy<Value = MessageLine> {
        let numbers = (prop_oneof![0..4_u32, any::<u32>()], prop_oneof![0..3_u32, any::<u32>()]);
        let times = (-(1_i64 << 50)..1 << 50, proptest::option::of(-1_000_000_i64..1 << 50));
        ((0_usize..300, 0_usize..300), times, 0_usize..5, 0_usize..3, numbers).prop_map(
            |((from, to), (sent, flight), fate, content, (number, incarnation))| MessageLine {
                from,
                to,
                sent,
                arrived: flight.map(|it| sent + it),
                fate: FATES[fate],
                between: from % 2 != to % 2,
                number,
                incarnation,
                content: CONTENTS[content],
            },
        )
    }

    fn mark() -> impl Strategy<Value = CheckpointMark> {
        let members = proptest::collection::btree_map(0_usize..300, -(1_i64 << 40)..1 << 40, 1..9);
        (members, any::<i32>(), 0_usize..3, any::<(u32, u32, bool)>()).prop_map(
            |(members, committed, kind, (sn, incarnation, undone))| CheckpointMark {
                members: members.into_iter().collect(),
                committed: committed.into(),
                kind: CHECKPOINT_KINDS[kind],
                position: Position::new(incarnation, sn),
                undone,
            },
        )
    }

    proptest! {
        #[test]
        fn packed_messages_can_be_unpacked(lines in proptest::collection::vec(line(), 0..60), begin: i32) {
            let begin = begin.into();
            prop_assert_eq!(unpack_messages(&pack_messages(&lines, begin), begin), lines);
        }

        #[test]
        fn packed_checkpoints_can_be_unpacked(marks in proptest::collection::vec(mark(), 0..20), begin: i32) {
            let (begin, all) = (begin.into(), marks.iter().collect::<Vec<_>>());
            prop_assert_eq!(unpack_checkpoints(&pack_checkpoints(&all, begin), begin), marks);
        }

        #[test]
        fn a_selection_is_even_and_prefers_notable_items(all in 0_usize..400, limit in 0_usize..400, every in 1_usize..20) {
            let items: Vec<usize> = (0..all).collect();
            let kept: Vec<_> = selection(&items, limit, |it| it % every == 0).collect();
            prop_assert_eq!(kept.len(), all.min(limit));
            prop_assert!(kept.is_sorted());
            let notable = kept.iter().filter(|it| ***it % every == 0).count();
            prop_assert!(notable >= all.div_ceil(every).min(limit - limit / 10));
        }
    }

    #[test]
    fn base64_is_standard() {
        let text = |it: &str| Packed(it.as_bytes().to_vec()).base64();
        assert_eq!(["", "f", "of", "foo", "foob~?"].map(text), ["", "Zg==", "b2Y=", "Zm9v", "Zm9vYn4/"]);
    }

    /// Returns a run of two clusters of 100 processes that exchange 100,000 messages and take 2,400 checkpoints.
    pub(crate) fn large() -> Diagram {
        let lanes = 200;
        let line = |number: usize| {
            let (from, round) = (number % lanes, number / lanes);
            let to = if round % 10 == 0 { (from + 100) % lanes } else { from / 100 * 100 + (from + 1) % 100 };
            let sent = number as i64 * 600 + (number * 7919 % 400) as i64;
            let fate = if number.is_multiple_of(97) { Fate::Undone } else { Fate::Delivered };
            let between = round % 10 == 0;
            let arrived = Some(sent + 80 + (number % 5000) as i64);
            let (number, content) = (round as u32, Content::Message);
            MessageLine { from, to, sent, arrived, fate, between, number, incarnation: 0, content }
        };
        let mark = |number: usize| {
            let (cluster, at) = (number % 2, number as i64 * 25_000);
            CheckpointMark {
                members: (0..100).map(|it| (cluster * 100 + it, at + it as i64 * 13)).collect(),
                committed: at + 9000,
                kind: Kind::Unforced,
                position: Position::new(0, number as u32 / 2),
                undone: false,
            }
        };
        let stretch = |lane| Stretch { lane, from: 20_000_000, upto: 21_000_000 };
        let cluster = |name: &str, first| ClusterLanes { name: name.to_owned(), first, lanes: 100 };
        Diagram {
            begin: 0,
            end: 60_000_000,
            clusters: vec![cluster("paris", 0), cluster("rennes", 100)],
            lanes: (0..lanes).map(|it| format!("process-{it}")).collect(),
            messages: (0..100_000).map(line).collect(),
            checkpoints: (0..2400).map(mark).collect(),
            undone: (0..lanes).map(stretch).collect(),
            recoveries: (0..lanes).map(stretch).collect(),
            ..Diagram::default()
        }
    }

    #[test]
    fn a_run_of_many_messages_and_checkpoints_is_small() {
        let large = large();
        let size = |packed: &PackedDiagram| serde_json::to_string(packed).unwrap().len();
        let all = PackedDiagram::new(&large);
        assert_eq!((all.kept, all.total, all.counts.is_none()), (100_000, 100_000, true));
        assert!(all.messages.0.len() < 100_000 * 9, "{} bytes", all.messages.0.len());
        assert!(
            all.checkpoints.0.len() < 2400 * 16 && all.notes.is_empty(),
            "{} bytes",
            all.checkpoints.0.len()
        );
        assert!(size(&all) < 1_300_000, "{} bytes", size(&all));
        assert!(super::super::svg::render(&large, super::super::svg::Options::default()).len() < 1 << 20);
        let within = super::super::svg::Options { within: true, ..Default::default() };
        assert!(super::super::svg::render(&large, within).len() < 1 << 20);
    }

    #[test]
    fn a_page_of_a_selection_counts_every_message() {
        let large = large();
        let part = PackedDiagram::within(&large, 5_000, 100);
        assert_eq!((part.kept, part.total, part.notes.len()), (5_000, 100_000, 2));
        assert!(part.notes[0].contains("has 100000 messages"), "{:?}", part.notes);
        let counts = part.counts.expect("it has counts");
        assert_eq!(counts.columns, COLUMNS);
        assert!(counts.cells.0.len() < 500_000, "{} bytes", counts.cells.0.len());
        let (mut bytes, mut sum) = (Unpacked(counts.cells.0.iter()), 0);
        while bytes.0.len() > 0 {
            bytes.number();
            sum += bytes.number();
        }
        assert_eq!(sum, 200_000, "each message is sent and arrives");
    }
}
