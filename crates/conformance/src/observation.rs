//! Observations of a probe. A probe can report only facts, so each observation is encoded as a claim.

use faultline_core::{Boot, Claim, Fact, Life, ProcessId, Sn, Time};
use faultline_trace::Trace;

/// An action of the driver, as observed by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A life began.
    Started {
        /// How the life began.
        boot: Boot,
        /// Version in the record that the life received; 0 without a record.
        record: u32,
    },
    /// The probe received a membership.
    Membership {
        /// Version of the membership.
        version: u32,
    },
    /// The new membership differs from the previous one in the newest life of `process`, or in whether the process is
    /// up.
    Peer {
        /// The process concerned.
        process: ProcessId,
        /// The newest life of the process.
        life: Life,
        /// Whether the process is up.
        up: bool,
    },
    /// A message arrived unchanged.
    Received {
        /// The sending process.
        from: ProcessId,
        /// The life that sent the message.
        from_life: Life,
        /// The life for which the sender intended the message.
        for_life: Life,
        /// Number of the message: consecutive for each pair of lives, from 0.
        number: u32,
    },
    /// An image from another process arrived unchanged.
    ReceivedImage {
        /// Owner and sender of the image.
        from: ProcessId,
        /// The life that created the image.
        by: Life,
        /// Number of the image.
        number: u32,
    },
    /// An image was written.
    Persisted {
        /// The life that created the image.
        by: Life,
        /// Number of the image.
        number: u32,
    },
    /// An image could not be written.
    PersistFailed {
        /// The life that created the image.
        by: Life,
        /// Number of the image.
        number: u32,
    },
    /// An image was read.
    Read {
        /// The life that created the image.
        by: Life,
        /// Number of the image.
        number: u32,
        /// Whether the image exists with its original content.
        intact: bool,
    },
    /// A listing arrived. One [`Observation::Found`] follows for each of its images.
    Listed {
        /// Number of images in the listing.
        images: u32,
    },
    /// An image in the listing.
    Found {
        /// The life that created the image.
        by: Life,
        /// Number of the image.
        number: u32,
    },
    /// A record was written.
    Recorded {
        /// Version of the record.
        version: u32,
    },
    /// A job returned.
    Computed {
        /// The life that requested the job, according to the job itself.
        by: Life,
        /// Number of the job, according to the job itself.
        number: u32,
    },
    /// A step of the script was performed. Early timeouts are not observed.
    Stepped {
        /// Index of the step in the script.
        step: u32,
        /// Delay in microseconds.
        late: u32,
    },
}

use Observation::*;

impl Observation {
    /// Encodes the observation as a fact.
    ///
    /// # Panics
    ///
    /// Panics if a received message was sent by or for a life numbered 65,536 or more.
    pub fn to_fact(self) -> Fact {
        let (code, a, b, c) = match self {
            Started { boot, record } => (0, boot_code(boot), record, 0),
            Membership { version } => (1, version, 0, 0),
            Peer { process, life, up } => (2, process.0, life.0, u32::from(up)),
            Received { from, from_life, for_life, number } => {
                assert!(from_life.0 < 1 << 16 && for_life.0 < 1 << 16, "tests have few lives");
                (3, from.0, from_life.0 << 16 | for_life.0, number)
            }
            ReceivedImage { from, by, number } => (4, from.0, by.0, number),
            Persisted { by, number } => (5, by.0, number, 0),
            PersistFailed { by, number } => (6, by.0, number, 0),
            Read { by, number, intact } => (7, by.0, number, u32::from(intact)),
            Listed { images } => (8, images, 0, 0),
            Found { by, number } => (9, by.0, number, 0),
            Recorded { version } => (10, version, 0, 0),
            Computed { by, number } => (11, by.0, number, 0),
            Stepped { step, late } => (12, step, late, 0),
        };
        Fact::Claim(Box::new(Claim::Collected { round: code, below: Sn(a), kept: b, log: c }))
    }

    /// Decodes an observation; `None` for any other fact.
    pub fn from_fact(fact: &Fact) -> Option<Observation> {
        let Fact::Claim(claim) = fact else { return None };
        let Claim::Collected { round, below: Sn(a), kept: b, log: c } = **claim else { return None };
        Some(match round {
            0 => Started { boot: [Boot::Fresh, Boot::Restarted, Boot::Replaced][a as usize], record: b },
            1 => Membership { version: a },
            2 => Peer { process: ProcessId(a), life: Life(b), up: c == 1 },
            3 => Received {
                from: ProcessId(a),
                from_life: Life(b >> 16),
                for_life: Life(b & 0xFFFF),
                number: c,
            },
            4 => ReceivedImage { from: ProcessId(a), by: Life(b), number: c },
            5 => Persisted { by: Life(a), number: b },
            6 => PersistFailed { by: Life(a), number: b },
            7 => Read { by: Life(a), number: b, intact: c == 1 },
            8 => Listed { images: a },
            9 => Found { by: Life(a), number: b },
            10 => Recorded { version: a },
            11 => Computed { by: Life(a), number: b },
            12 => Stepped { step: a, late: b },
            _ => return None,
        })
    }
}

/// Returns the observations of one life of a process, in order.
pub fn observations(trace: &Trace, process: ProcessId, life: Life) -> Vec<Observation> {
    let stream = trace.streams.get(&(process, life)).map_or(&[][..], Vec::as_slice);
    stream.iter().filter_map(|(_, fact): &(Time, Fact)| Observation::from_fact(fact)).collect()
}

fn boot_code(boot: Boot) -> u32 {
    match boot {
        Boot::Fresh => 0,
        Boot::Restarted => 1,
        Boot::Replaced => 2,
    }
}
