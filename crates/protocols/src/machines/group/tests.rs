//! A group of three processes with one replica of each part at the next process. Their network and storage respond
//! immediately.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Boot, Claim, Cluster, ClusterId, GroupId, Image, ImageName, Incarnation, Life, Machine, Member,
    Membership, MembershipVersion, NodeId, Position, ProcessId, ProtocolTypes, Role, Scope, Sn, Time, To,
};

use super::{Group, GroupMessage, Grouped, Resumed, Rules, View};
use crate::machines::{Checkpoint, testing};
use crate::placement::{Placement, ReplicateTo};

#[derive(Clone, Debug)]
struct Plain;

impl ProtocolTypes for Plain {
    type Control = GroupMessage;
    /// The companion of a part.
    type Head = Option<ImageName>;
    type Saved = ();
}

impl Grouped for Plain {
    fn companions(_: ProcessId, companion: &Option<ImageName>) -> Vec<ImageName> {
        companion.iter().copied().collect()
    }
}

type Part = Arc<Image<Option<ImageName>, ()>>;

/// Returns `owner`'s part of checkpoint `sn`, without content.
fn image(owner: u32, sn: u32, companion: Option<ImageName>) -> Part {
    let Image { name, snapshot, .. } = (*testing::image(owner, sn)).clone();
    Arc::new(Image { name, head: Arc::new(companion), saved: Arc::default(), snapshot })
}

/// An action of a process that the test has to carry out.
#[derive(Debug)]
enum Act {
    Message(ProcessId, GroupMessage),
    Image(ProcessId, Part),
    Persist(Part),
    Read(ImageName),
    List,
    Started,
}

/// The host of one process.
#[derive(Default)]
struct Actions {
    acts: Vec<Act>,
    claims: Vec<Claim>,
    deleted: Vec<ImageName>,
}

const ALL: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

impl Machine<Plain> for Actions {
    fn control(&mut self, to: To, message: GroupMessage) {
        match to {
            To::One(to) => self.acts.push(Act::Message(to, message)),
            To::Cluster(_) => self.acts.extend(ALL.map(|to| Act::Message(to, message.clone()))),
        }
    }
    fn send_image(&mut self, to: ProcessId, image: Part) {
        self.acts.push(Act::Image(to, image));
    }
    fn persist(&mut self, image: Part) {
        self.acts.push(Act::Persist(image));
    }
    fn read(&mut self, name: ImageName) {
        self.acts.push(Act::Read(name));
    }
    fn list(&mut self) {
        self.acts.push(Act::List);
    }
    fn delete(&mut self, name: ImageName) {
        self.deleted.push(name);
    }
    fn record(&mut self, _: u64, _: Arc<[u8]>) {
        unreachable!("all numbers follow from the membership")
    }
    fn started(&mut self) {
        self.acts.push(Act::Started);
    }
    fn held(&mut self) {}
    fn claim(&mut self, claim: Claim) {
        self.claims.push(claim);
    }
}

struct Federation {
    membership: Membership,
    groups: Vec<Group<Plain>>,
    storages: Vec<BTreeMap<ImageName, Part>>,
    resumed: Vec<Option<Resumed<Plain>>>,
    claims: Vec<Claim>,
}

impl Federation {
    fn new() -> Federation {
        let member = |it: ProcessId| Member {
            cluster: ClusterId(0),
            role: Role::RANK,
            node: NodeId(it.0),
            life: Life(1),
            up: true,
            started: true,
            gone: false,
            idle_lives: 0,
        };
        let membership = Membership {
            version: MembershipVersion(1),
            members: ALL.map(member).into(),
            clusters: [Cluster::new(ALL.into())].into(),
        };
        let mut federation = Federation {
            membership,
            groups: Vec::new(),
            storages: ALL.map(|_| BTreeMap::new()).into(),
            resumed: ALL.map(|_| None).into(),
            claims: Vec::new(),
        };
        for it in ALL {
            let group = federation.begin_life(it, Boot::Fresh);
            federation.groups.push(group);
        }
        federation
    }

    fn view(&self) -> View {
        View::new(Scope::Cluster, None, Arc::new(self.membership.clone()))
    }

    /// Begins a life that does not know yet what its storage contains.
    fn begin_unlisted(&self, me: ProcessId, boot: Boot) -> Group<Plain> {
        let placement = Placement { replicas: 1, to: ReplicateTo::SameCluster };
        let membership = super::GroupParameters { me, boot, view: self.view(), placement, rules: Rules::ALL };
        Group::new(membership, &mut Actions::default())
    }

    fn begin_life(&self, me: ProcessId, boot: Boot) -> Group<Plain> {
        let mut group = self.begin_unlisted(me, boot);
        let images = self.storages[me.index()].keys().map(|&name| (name, Arc::default())).collect();
        group.listed(images, &mut Actions::default());
        group
    }

    /// Stores a checkpoint, except for the parts in `without`: pairs of an owner and a process that would store its
    /// part.
    fn store(&mut self, sn: u32, without: &[(ProcessId, ProcessId)]) {
        for owner in ALL {
            for at in [owner, ProcessId((owner.0 + 1) % 3)] {
                if !without.contains(&(owner, at)) {
                    let image = image(owner.0, sn, None);
                    self.storages[at.index()].insert(image.name, image.clone());
                    let mut host = Actions::default();
                    self.groups[at.index()].store.writes.write(image.clone(), &mut host);
                    self.groups[at.index()].persisted(image.name, &mut host);
                }
            }
        }
    }

    /// Makes a process fail and restart, and handles everything that follows.
    fn fail(&mut self, failed: ProcessId, storage_lost: bool) {
        let mut members = self.membership.members.to_vec();
        members[failed.index()].life.0 += 1;
        self.membership.version.0 += 1;
        self.membership.members = members.into();
        if storage_lost {
            self.storages[failed.index()].clear();
        }
        let boot = if storage_lost { Boot::Replaced } else { Boot::Restarted };
        self.groups[failed.index()] = self.begin_life(failed, boot);
        let mut pending = VecDeque::new();
        for it in ALL.into_iter().rev() {
            let mut host = Actions::default();
            let view = self.view();
            let group = &mut self.groups[it.index()];
            group.view = view;
            assert!(group.must_freeze());
            group.freeze();
            group.watch_members(&mut host);
            self.done(it, host, &mut pending);
        }
        while let Some((it, act)) = pending.pop_front() {
            self.perform(it, act, &mut pending);
        }
    }

    fn perform(&mut self, by: ProcessId, act: Act, pending: &mut VecDeque<(ProcessId, Act)>) {
        let mut host = Actions::default();
        let mut at = by;
        match act {
            Act::Message(to, message) if to != by => {
                at = to;
                let group = &mut self.groups[to.index()];
                assert!(!group.is_early(&message));
                group.handle(by, message, &mut host);
            }
            Act::Message(..) | Act::List | Act::Started => {}
            Act::Image(to, image) => {
                at = to;
                self.groups[to.index()].image_arrived(by, image, &mut host);
            }
            Act::Persist(image) => {
                let name = image.name;
                self.storages[by.index()].insert(name, image);
                self.groups[by.index()].persisted(name, &mut host);
                self.groups[by.index()].own_part_durable(name, &mut host);
            }
            Act::Read(name) => {
                let image = self.storages[by.index()].get(&name).cloned();
                if self.groups[by.index()].read(name, image.as_ref(), &mut host) || image.is_none() {
                    self.groups[by.index()].own_part_read(name, image, &mut host);
                }
            }
        }
        self.done(at, host, pending);
    }

    fn done(&mut self, at: ProcessId, host: Actions, pending: &mut VecDeque<(ProcessId, Act)>) {
        pending.extend(host.acts.into_iter().map(|act| (at, act)));
        self.claims.extend(host.claims);
        for name in host.deleted {
            self.storages[at.index()].remove(&name);
        }
        if let Some(resumed) = self.groups[at.index()].take_resumed() {
            let before = self.resumed[at.index()].replace(resumed);
            assert!(before.is_none(), "a process resumes only once");
        }
    }

    /// Returns the SN of the checkpoint that each process has restored; `None` if the process has not resumed.
    fn restored(&mut self) -> Vec<Option<Sn>> {
        let sn = |it: &mut Option<Resumed<Plain>>| {
            it.take().map(|it| it.target.map_or(Sn(0), |it| it.position.sn))
        };
        self.resumed.iter_mut().map(sn).collect()
    }
}

#[test]
fn all_members_resume_once_from_the_newest_checkpoint() {
    let mut federation = Federation::new();
    federation.store(1, &[]);
    federation.store(2, &[]);
    federation.fail(ALL[1], false);
    assert_eq!(federation.restored(), [Some(Sn(2)); 3]);
    assert!(federation.groups.iter().all(|it| it.incarnation == Incarnation(1) && !it.is_recovering()));
    federation.fail(ALL[0], false);
    assert_eq!(federation.restored(), [Some(Sn(2)); 3]);
}

#[test]
fn a_process_that_lost_its_storage_recovers_its_part_and_its_replica() {
    let mut federation = Federation::new();
    federation.store(1, &[]);
    federation.fail(ALL[1], true);
    assert_eq!(federation.restored(), [Some(Sn(1)); 3]);
    let names =
        |it: ProcessId| federation.storages[it.index()].keys().map(|it| it.owner.0).collect::<Vec<_>>();
    assert_eq!(names(ALL[1]), [0, 1], "the process's own part, and the replica that it holds");
}

#[test]
fn an_incomplete_checkpoint_is_skipped() {
    let mut federation = Federation::new();
    federation.store(1, &[]);
    federation.store(2, &[(ALL[2], ALL[2]), (ALL[2], ALL[0])]);
    federation.fail(ALL[1], false);
    assert_eq!(federation.restored(), [Some(Sn(1)); 3]);
}

#[test]
fn a_missing_replica_is_replaced_before_the_group_resumes() {
    let mut federation = Federation::new();
    federation.store(1, &[(ALL[0], ALL[1])]);
    federation.fail(ALL[2], false);
    assert_eq!(federation.restored(), [Some(Sn(1)); 3]);
    assert!(federation.storages[1].keys().any(|it| it.owner == ALL[0]));
}

#[test]
fn losing_a_part_and_its_replica_is_reported_as_unrecoverable() {
    let mut federation = Federation::new();
    federation.store(1, &[(ALL[1], ALL[1]), (ALL[1], ALL[2])]);
    federation.fail(ALL[2], false);
    assert_eq!(federation.restored(), [None; 3]);
    let first = Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) };
    let missing = Arc::from([(first.part(ALL[1]), Vec::from([ALL[1], ALL[2]]))]);
    let expected = Claim::Unrecoverable { group: GroupId(0), missing };
    assert!(federation.claims.contains(&expected), "{:?}", federation.claims);
}

/// Returns the processes to which `host` was told to send a refusal.
fn refused(host: &Actions) -> Vec<ProcessId> {
    let refusal = |act: &Act| match act {
        Act::Message(to, GroupMessage::Refused(_)) => Some(*to),
        _ => None,
    };
    host.acts.iter().filter_map(refusal).collect()
}

/// A holder requests a part that the owner announced in its previous life: the announcement had to wait for the listing
/// of the holder's storage, so the request reaches the owner's new life.
#[test]
fn an_owner_refuses_a_part_unless_it_may_get_it_back() {
    let federation = Federation::new();
    for (boot, expected) in [(Boot::Replaced, Vec::new()), (Boot::Restarted, Vec::from([ALL[1]]))] {
        let mut owner = federation.begin_life(ALL[0], boot);
        let name = testing::name(0, 1);
        let mut host = Actions::default();
        owner.handle(ALL[1], GroupMessage::Fetch(name), &mut host);
        owner.read(name, None, &mut host);
        assert_eq!(refused(&host), expected, "{boot:?}");
    }
}

/// Returns p1 after it has lost its storage and restored its own part. It still lacks its replica of p0's part.
fn refilled_holder(host: &mut Actions) -> Group<Plain> {
    let mut holder = Federation::new().begin_life(ALL[1], Boot::Replaced);
    holder.store.has_own(host);
    holder
}

fn announce(to: &mut Group<Plain>, incarnation: u32, sn: u32, host: &mut Actions) {
    let name = Some(testing::name(0, sn));
    to.handle(ALL[0], GroupMessage::Hold { incarnation: Incarnation(incarnation), name }, host);
}

fn receive(holder: &mut Group<Plain>, sn: u32, host: &mut Actions) {
    holder.image_arrived(ALL[0], image(0, sn, None), host);
    holder.persisted(testing::name(0, sn), host);
}

#[test]
fn a_holder_waits_for_the_part_that_its_owner_announced_last() {
    let mut host = Actions::default();
    let mut holder = refilled_holder(&mut host);
    announce(&mut holder, 0, 3, &mut host);
    announce(&mut holder, 1, 2, &mut host);
    assert!(host.claims.is_empty(), "the storage lacks the part");
    receive(&mut holder, 2, &mut host);
    assert_eq!(host.claims, [Claim::Protected], "the owner has undone the newer part");
}

#[test]
fn a_holder_lacks_a_part_whose_companion_was_refused() {
    let mut host = Actions::default();
    let mut holder = refilled_holder(&mut host);
    announce(&mut holder, 0, 1, &mut host);
    let companion = ImageName { sn: Sn(0), ..testing::name(0, 1) };
    holder.image_arrived(ALL[0], image(0, 1, Some(companion)), &mut host);
    holder.handle(ALL[0], GroupMessage::Refused(companion), &mut host);
    assert!(host.claims.is_empty(), "the owner may still get the companion back");
    announce(&mut holder, 0, 2, &mut host);
    receive(&mut holder, 2, &mut host);
    assert_eq!(host.claims, [Claim::Protected]);
}

/// The owner fails before it answers the holder's requests, so the requests are lost, and its group restores an older
/// checkpoint. Of the requested images, this checkpoint needs neither the newer part nor the segment.
#[test]
fn a_holder_does_not_wait_for_what_its_owner_requested_before_an_older_restore() {
    let segment = ImageName { sn: Sn(0), ..testing::name(0, 1) };
    for undone in [testing::name(0, 2), segment] {
        let mut host = Actions::default();
        let mut holder = refilled_holder(&mut host);
        holder.handle(ALL[0], GroupMessage::Secure(undone), &mut host);
        holder.handle(ALL[0], GroupMessage::Secure(testing::name(0, 1)), &mut host);
        receive(&mut holder, 1, &mut host);
        announce(&mut holder, 1, 1, &mut host);
        assert_eq!(host.claims, [Claim::Protected], "{undone:?}");
    }
}

/// The owner's messages arrive while the holder waits for the listing of its storage.
#[test]
fn messages_that_arrive_before_the_listing_count_in_their_order() {
    let mut host = Actions::default();
    let mut holder = Federation::new().begin_unlisted(ALL[1], Boot::Replaced);
    holder.handle(ALL[0], GroupMessage::Secure(testing::name(0, 2)), &mut host);
    announce(&mut holder, 1, 1, &mut host);
    holder.listed(Vec::new(), &mut host);
    holder.store.has_own(&mut host);
    receive(&mut holder, 1, &mut host);
    assert_eq!(host.claims, [Claim::Protected], "the owner has undone the newer part");
}

/// The owner commits a checkpoint before a segment that it has requested to be held is durable at the holder.
#[test]
fn a_holder_waits_for_a_segment_of_the_current_incarnation() {
    let mut host = Actions::default();
    let mut holder = refilled_holder(&mut host);
    let segment = ImageName { sn: Sn(0), ..testing::name(0, 1) };
    holder.handle(ALL[0], GroupMessage::Secure(segment), &mut host);
    announce(&mut holder, 0, 1, &mut host);
    receive(&mut holder, 1, &mut host);
    assert!(host.claims.is_empty(), "the storage lacks the segment");
    holder.persisted(segment, &mut host);
    assert_eq!(host.claims, [Claim::Protected]);
}

/// The holder loses its storage while a checkpoint is in progress, so its owner sends the part of this checkpoint again
/// before it announces the part to hold. The coordinator may already have committed the checkpoint.
#[test]
fn a_holder_waits_for_a_part_that_arrives_before_the_announcement() {
    for announced in [None, Some(1)] {
        let mut host = Actions::default();
        let mut holder = refilled_holder(&mut host);
        holder.image_arrived(ALL[0], image(0, 2, None), &mut host);
        let name = announced.map(|sn| testing::name(0, sn));
        holder.handle(ALL[0], GroupMessage::Hold { incarnation: Incarnation(0), name }, &mut host);
        if let Some(sn) = announced {
            receive(&mut holder, sn, &mut host);
        }
        assert!(host.claims.is_empty(), "{announced:?}: the storage lacks the newer part");
        holder.persisted(testing::name(0, 2), &mut host);
        assert_eq!(host.claims, [Claim::Protected], "{announced:?}");
    }
}

/// The storage refuses the part of a checkpoint in progress. Before the write is repeated, the owner commits a later
/// checkpoint, or its group restores an older one.
#[test]
fn a_holder_does_not_wait_for_a_part_that_its_owner_no_longer_needs() {
    for (incarnation, sn) in [(0, 3), (1, 1)] {
        let mut host = Actions::default();
        let mut holder = refilled_holder(&mut host);
        holder.image_arrived(ALL[0], image(0, 2, None), &mut host);
        holder.write_failed(testing::name(0, 2), Time(50), &mut host);
        announce(&mut holder, incarnation, sn, &mut host);
        receive(&mut holder, sn, &mut host);
        assert_eq!(host.claims, [Claim::Protected], "checkpoint {sn}");
        assert_eq!(holder.store.writes.names().count(), 0, "the refused write is not repeated");
    }
}
