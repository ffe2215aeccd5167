//! What a program must not ask of its host. The composite, the application and the checker rely on these rules, which
//! the code of a built-in protocol cannot break by accident.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_core::{
    Claim, ClusterId, Fact, Image, ImageName, MessageId, Payload, ProcessId, Snapshot, Span, Time,
};
use faultline_trace::Extent;

use crate::contract::{Event, Json, Saved, Wrong};
use crate::payload;

/// An image of a program.
pub(crate) type ProgramImage = Arc<Image<Json, Saved>>;

/// What the host knows about one life of a program.
#[derive(Debug)]
pub(crate) struct Checks {
    me: ProcessId,
    extent: Extent,
    /// Why the application is held, as an event; `None` if it is not.
    held_since: Option<String>,
    /// Since when the application is held for a checkpoint, rather than for another reason.
    frozen_since: Option<Time>,
    /// The time for which it was held before, since the last commit.
    frozen: Span,
    /// The version of the last record.
    record: u64,
    /// The images and snapshots to which the program may refer.
    images: BTreeMap<ImageName, ProgramImage>,
    snapshots: BTreeMap<u64, Snapshot>,
    kept_images: BTreeSet<ImageName>,
    kept_snapshots: BTreeSet<u64>,
    /// The number of snapshots so far.
    taken: u64,
}

impl Checks {
    pub(crate) fn new(me: ProcessId, extent: Extent) -> Checks {
        Checks {
            me,
            extent,
            held_since: Some("event 1 (`start`)".to_owned()),
            frozen_since: None,
            frozen: Span::ZERO,
            record: 0,
            images: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            kept_images: BTreeSet::new(),
            kept_snapshots: BTreeSet::new(),
            taken: 0,
        }
    }

    /// Drops the images and snapshots that the program did not keep while it answered an event.
    pub(crate) fn answered(&mut self) {
        let Checks { images, snapshots, kept_images, kept_snapshots, .. } = self;
        images.retain(|name, _| kept_images.contains(name));
        snapshots.retain(|number, _| kept_snapshots.contains(number));
    }

    /// Holds the application because of a failure.
    pub(crate) fn hold(&mut self, event: &str) {
        self.held_since.get_or_insert_with(|| event.to_owned());
        self.frozen_since = None;
    }

    /// Holds the application until a send may take effect.
    pub(crate) fn wait(&mut self, event: &str) {
        self.held_since.get_or_insert_with(|| event.to_owned());
    }

    /// Holds the application for a checkpoint.
    pub(crate) fn freeze(&mut self, event: &str, now: Time) {
        self.held_since.get_or_insert_with(|| event.to_owned());
        self.frozen_since.get_or_insert(now);
    }

    pub(crate) fn release(&mut self, now: Time) {
        self.held_since = None;
        let since = self.frozen_since.take();
        self.frozen = self.frozen + since.map_or(Span::ZERO, |since| now.since(since));
    }

    /// Returns the time for which the application was held for checkpoints since the last call.
    pub(crate) fn take_frozen(&mut self, now: Time) -> Span {
        let current = self.frozen_since.as_mut().map_or(Span::ZERO, |since| {
            let frozen = now.since(*since);
            *since = now;
            frozen
        });
        std::mem::take(&mut self.frozen) + current
    }

    pub(crate) fn running(&self) -> Result<(), Wrong> {
        match &self.held_since {
            None => Ok(()),
            Some(event) => Err(format!("the application is held since {event}")),
        }
    }

    pub(crate) fn process(&self, process: ProcessId) -> Result<ProcessId, Wrong> {
        if process.index() < self.extent.processes {
            return Ok(process);
        }
        Err(format!("there is no process {}; the last one is {}", process.0, self.extent.processes - 1))
    }

    pub(crate) fn cluster(&self, number: u32) -> Result<ClusterId, Wrong> {
        let cluster = u16::try_from(number).ok().map(ClusterId);
        let known = cluster.filter(|it| it.index() < self.extent.clusters);
        known.ok_or_else(|| {
            format!("there is no cluster {number}; the last one is {}", self.extent.clusters - 1)
        })
    }

    /// Fails unless this process sends the message.
    pub(crate) fn outgoing(&self, id: MessageId) -> Result<MessageId, Wrong> {
        self.process(id.to)?;
        if id.from == self.me {
            return Ok(id);
        }
        Err(format!("process {} sends this message, not process {}", id.from.0, self.me.0))
    }

    /// Fails unless this process receives the message.
    pub(crate) fn incoming(&self, id: MessageId) -> Result<MessageId, Wrong> {
        self.process(id.from)?;
        if id.to == self.me {
            return Ok(id);
        }
        Err(format!("process {} receives this message, not process {}", id.to.0, self.me.0))
    }

    pub(crate) fn claim(&self, claim: Claim) -> Result<Claim, Wrong> {
        let fact = Fact::Claim(Box::new(claim));
        let is_possible = self.extent.allows_of_process(&fact);
        match fact {
            Fact::Claim(claim) if is_possible => Ok(*claim),
            _ => Err("the claim names a process or a cluster that does not exist".to_owned()),
        }
    }

    pub(crate) fn record(&mut self, version: u64) -> Result<u64, Wrong> {
        if version != self.record + 1 {
            return Err(format!("the version of this record is {version} instead of {}", self.record + 1));
        }
        self.record = version;
        Ok(version)
    }

    /// Makes a snapshot available, and returns its number.
    pub(crate) fn add_snapshot(&mut self, snapshot: Snapshot) -> u64 {
        self.taken += 1;
        self.snapshots.insert(self.taken, snapshot);
        self.taken
    }

    pub(crate) fn snapshot(&self, number: u64) -> Result<&Snapshot, Wrong> {
        let help = "it is at hand only while its event is answered, unless you `keep` it";
        self.snapshots.get(&number).ok_or_else(|| format!("snapshot {number} is not at hand; {help}"))
    }

    pub(crate) fn add_image(&mut self, image: ProgramImage) {
        self.images.insert(image.name, image);
    }

    pub(crate) fn image(&self, name: ImageName) -> Result<&ProgramImage, Wrong> {
        let ImageName { owner, incarnation, sn, attempt } = name;
        let help = "it is at hand only while its event is answered, unless you `keep` it";
        self.images.get(&name).ok_or_else(|| {
            let name = format!("[{},{},{},{}]", owner.0, incarnation.0, sn.0, attempt.0);
            format!("image {name} is not at hand; {help}")
        })
    }

    /// Returns an image that this process can restore.
    pub(crate) fn restorable(&self, name: ImageName) -> Result<&ProgramImage, Wrong> {
        let image = self.image(name)?;
        if name.owner != self.me || !name.is_part() {
            return Err("this image does not contain the state of this process".to_owned());
        }
        Ok(image)
    }

    /// Keeps an image or a snapshot, or no longer does so.
    pub(crate) fn keep(
        &mut self,
        image: Option<ImageName>,
        snapshot: Option<u64>,
        keeps: bool,
    ) -> Result<(), Wrong> {
        match (image, snapshot) {
            (Some(name), None) if keeps => drop(self.kept_images.insert(self.image(name)?.name)),
            (Some(name), None) => drop(self.kept_images.remove(&name)),
            (None, Some(number)) if keeps => {
                self.snapshot(number)?;
                self.kept_snapshots.insert(number);
            }
            (None, Some(number)) => drop(self.kept_snapshots.remove(&number)),
            _ => return Err("either `image` or `snapshot` must be given".to_owned()),
        }
        Ok(())
    }
}

/// The application message that an event carries.
pub(crate) struct Carried {
    id: MessageId,
    payload: Payload,
    text: String,
}

impl Carried {
    pub(crate) fn new(id: MessageId, payload: Payload) -> Carried {
        let text = payload::encode(id, &payload);
        Carried { id, payload, text }
    }

    pub(crate) fn add_to(&self, event: Event) -> Event {
        event.message(self.id).word("payload", &self.text)
    }
}

/// Returns the payload of a message: the given one or, if it is omitted, that of the event being answered.
pub(crate) fn payload_of(
    id: MessageId,
    given: Option<&str>,
    answered: Option<&Carried>,
) -> Result<Payload, Wrong> {
    match (given, answered) {
        (Some(text), Some(it)) if it.id == id && it.text == text => Ok(it.payload.clone()),
        (Some(text), _) => {
            payload::decode(id, text).ok_or_else(|| "the payload is not that of this message".to_owned())
        }
        (None, Some(it)) if it.id == id => Ok(it.payload.clone()),
        (None, _) => Err("field `payload` is missing, and the event does not carry this message".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_which_a_checkpoint_holds_the_application_is_measured() {
        let mut checks = Checks::new(ProcessId(0), Extent { processes: 2, clusters: 1 });
        checks.release(Time(5));
        assert_eq!(checks.take_frozen(Time(5)), Span::ZERO, "the start of a life is no checkpoint");
        checks.wait("event 2");
        checks.freeze("event 3", Time(10));
        checks.freeze("event 3", Time(12));
        assert_eq!(checks.take_frozen(Time(14)), Span(4));
        checks.release(Time(17));
        assert_eq!((checks.take_frozen(Time(20)), checks.take_frozen(Time(20))), (Span(3), Span::ZERO));
        checks.freeze("event 4", Time(30));
        checks.hold("event 5");
        checks.release(Time(90));
        assert_eq!(checks.take_frozen(Time(90)), Span::ZERO, "a recovery is no checkpoint");
    }
}
