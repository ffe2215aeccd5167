//! Ways to tamper with a record.
//!
//! A *raw* attack edits the files of a record. A *resealed* attack edits the facts or the manifest, and then writes
//! the record again with correct seals, lists and digests, so that only the contradiction remains to be found.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use faultline_core::fault::{Change, FaultState, Outcome};
use faultline_core::{
    Boot, EndedBy, Fact, Fault, FaultNo, Life, MessageId, ProcessId, Promises, Role, Scope, Span,
    StorageFate, Time, Trigger,
};
use faultline_trace::manifest::{BackendKind, EffectEntry, LinkObserved};
use faultline_trace::{Bundle, Manifest, Trace, split_body};
use serde_json::Value;

const SUPERVISOR: (ProcessId, Life) = (ProcessId::SUPERVISOR, Life(0));
const HEADER: usize = 16;
const SEAL: usize = 48;

type Stream = (ProcessId, Life);

/// A change to a record, and the reason that the verdict must give.
pub(crate) struct Attack {
    pub(crate) name: String,
    /// Strings, at least one of which must occur in the reasons. Empty if any reason will do, or if the record cannot
    /// be read at all.
    pub(crate) told: &'static [&'static str],
    pub(crate) act: Act,
}

pub(crate) type Edit = Box<dyn Fn(&mut Manifest, &mut Trace)>;

pub(crate) enum Act {
    Raw(Box<dyn Fn(&Path)>),
    Resealed(Edit),
}

impl Act {
    pub(crate) fn on(&self, dir: &Path) {
        match self {
            Act::Raw(act) => act(dir),
            Act::Resealed(act) => {
                let bundle = Bundle::open(dir);
                let (mut manifest, mut trace) =
                    (bundle.read_manifest().unwrap(), bundle.read_trace().unwrap());
                act(&mut manifest, &mut trace);
                bundle.clear().unwrap();
                let bundle = Bundle::create(dir).unwrap();
                bundle.write_trace(&trace).unwrap();
                bundle.write_manifest(&manifest).unwrap();
            }
        }
    }
}

#[derive(Default)]
struct Attacks(Vec<Attack>);

impl Attacks {
    fn raw(&mut self, name: impl Into<String>, told: &'static [&'static str], act: impl Fn(&Path) + 'static) {
        self.0.push(Attack { name: name.into(), told, act: Act::Raw(Box::new(act)) });
    }

    fn resealed(
        &mut self,
        name: impl Into<String>,
        told: &'static [&'static str],
        act: impl Fn(&mut Manifest, &mut Trace) + 'static,
    ) {
        let name = format!("{}, sealed again", name.into());
        self.0.push(Attack { name, told, act: Act::Resealed(Box::new(act)) });
    }

    /// Changes the bytes of a stream's file.
    fn bytes(
        &mut self,
        name: impl Into<String>,
        told: &'static [&'static str],
        (process, life): Stream,
        act: impl Fn(&[u8]) -> Vec<u8> + 'static,
    ) {
        self.raw(name, told, move |dir| {
            let path = Bundle::open(dir).facts_path(process, life);
            fs::write(&path, act(&fs::read(&path).unwrap())).unwrap();
        });
    }

    /// Changes `manifest.json` without updating its digest.
    fn entry(
        &mut self,
        name: impl Into<String>,
        told: &'static [&'static str],
        act: impl Fn(&mut Value) + 'static,
    ) {
        self.raw(name, told, move |dir| {
            let path = dir.join("manifest.json");
            let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let before = value.clone();
            act(&mut value);
            assert_ne!(value, before, "the attack changes something");
            fs::write(&path, serde_json::to_string_pretty(&value).unwrap()).unwrap();
        });
    }

    /// Removes the supervisor's first fact of a kind.
    fn without(&mut self, name: &str, told: &'static [&'static str], is_it: fn(&Fact) -> bool) {
        let removed = move |trace: &mut Trace| {
            let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
            let at = facts.iter().position(|(_, fact)| is_it(fact)).expect("there is such a fact");
            facts.remove(at);
        };
        self.resealed(format!("one fact `{name}` removed"), told, move |_, trace| removed(trace));
    }
}

/// Returns the position of each record in a file.
fn records(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut at) = (Vec::new(), HEADER);
    while let Ok((_, rest)) = split_body(&bytes[at..]) {
        found.push(at..bytes.len() - rest.len());
        at = bytes.len() - rest.len();
    }
    found
}

/// Returns all attacks on a record.
pub(crate) fn attacks(dir: &Path) -> Vec<Attack> {
    let bundle = Bundle::open(dir);
    let (manifest, trace) = (bundle.read_manifest().unwrap(), bundle.read_trace().unwrap());
    let mut attacks = Attacks::default();
    let failed = trace.streams.keys().find(|(_, life)| *life == Life(2)).expect("a process failed").0;
    let newest = |process| (process, trace.lives(process).next_back().expect("every process lives").0);
    let (earlier, later) = ((failed, Life(1)), newest(failed));
    let other = newest((0..).map(ProcessId).find(|it| *it != failed).unwrap());
    let speaks = |process| trace.streams.get(&(process, Life(1))).is_some_and(|stream| stream.len() > 3);
    let mut extra = (0..).map(ProcessId).zip(&manifest.processes);
    let extra = extra.find(|(process, it)| it.role != Role::RANK && speaks(*process));
    let extra = extra.map(|(process, entry)| ((process, Life(1)), entry.name.clone()));
    let mut streams = vec![
        (SUPERVISOR, "the supervisor".to_owned()),
        (earlier, "an earlier life".to_owned()),
        (later, "the last life of a rank that failed".to_owned()),
        (other, "another rank".to_owned()),
    ];
    streams.extend(extra.map(|(stream, name)| (stream, format!("{name} (no rank)"))));

    for (stream, who) in streams.clone() {
        let is_supervisor = stream == SUPERVISOR;
        attacks.raw(format!("stream of {who} removed"), &["are missing: there is no file"], move |dir| {
            fs::remove_file(Bundle::open(dir).facts_path(stream.0, stream.1)).unwrap();
        });
        let told: &[_] =
            if is_supervisor { &["the supervisor's facts are missing"] } else { &["there are no facts of"] };
        attacks.resealed(format!("stream of {who} removed"), told, move |_, trace| {
            trace.streams.remove(&stream).unwrap();
        });
        attacks.bytes(format!("last record of {who} cut off"), &["without a seal"], stream, |bytes| {
            bytes[..records(bytes).last().unwrap().start].to_vec()
        });
        attacks.bytes(
            format!("last record of {who} cut in its middle"),
            &["in the middle of a record"],
            stream,
            |bytes| {
                let last = records(bytes).last().unwrap().clone();
                bytes[..(last.start + last.end) / 2].to_vec()
            },
        );
        attacks.bytes(format!("{who} cut to 90 %"), &["without a seal"], stream, |bytes| {
            let records = records(bytes);
            bytes[..records[records.len() * 9 / 10 - 1].end].to_vec()
        });
        attacks.bytes(format!("seal of {who} cut off"), &["without a seal"], stream, |bytes| {
            bytes[..bytes.len() - SEAL].to_vec()
        });
        attacks.bytes(format!("first record of {who} removed"), &["the seal counts"], stream, |bytes| {
            let first = records(bytes)[0].clone();
            [&bytes[..first.start], &bytes[first.end..]].concat()
        });
        attacks.bytes(
            format!("one record in the middle of {who} removed"),
            &["the seal counts"],
            stream,
            |bytes| {
                let records = records(bytes);
                let one = records[records.len() / 2].clone();
                [&bytes[..one.start], &bytes[one.end..]].concat()
            },
        );
        attacks.bytes(format!("two records of {who} swapped"), &["the digest of all"], stream, |bytes| {
            let records = records(bytes);
            let (a, b) = (records[records.len() / 2 - 1].clone(), records[records.len() / 2].clone());
            [&bytes[..a.start], &bytes[b.clone()], &bytes[a.clone()], &bytes[b.end..]].concat()
        });
        attacks.bytes(format!("one record of {who} doubled"), &["the seal counts"], stream, |bytes| {
            let records = records(bytes);
            let one = records[records.len() / 2].clone();
            [&bytes[..one.end], &bytes[one.start..]].concat()
        });
        attacks.bytes(format!("one bit of {who} flipped"), &["have a gap"], stream, |bytes| {
            let mut bytes = bytes.to_vec();
            let one = records(&bytes)[records(&bytes).len() / 2].clone();
            bytes[one.end - 1] ^= 4;
            bytes
        });
        attacks.bytes(format!("file of {who} emptied"), &["cannot be read"], stream, |_| Vec::new());
        attacks.bytes(format!("only the header of {who} left"), &["without a seal"], stream, |bytes| {
            bytes[..HEADER].to_vec()
        });
        attacks.resealed(
            format!("a time of {who} moved back"),
            &["are not in chronological order"],
            move |_, trace| {
                let facts = trace.streams.get_mut(&stream).unwrap();
                let at = (1..facts.len()).rev().find(|&at| facts[at - 1].0 > Time::ZERO).unwrap();
                facts[at].0 = Time::ZERO;
            },
        );
    }

    // Seals.
    for (name, at, bit, told) in [
        ("who sealed it", SEAL - 6, 1, &["the digest of all"][..]),
        ("how many facts it seals", SEAL - 8, 1, &["the seal counts"][..]),
        ("the digest", 1, 0x80, &["the digest of all"][..]),
        ("whether it is complete", SEAL - 7, 1, &["the digest of all"][..]),
        ("its mark", SEAL, 1, &["have a gap", "in the middle of a record"][..]),
    ] {
        attacks.bytes(format!("changed in a seal: {name}"), told, other, move |bytes| {
            let (mut bytes, at) = (bytes.to_vec(), bytes.len() - at);
            bytes[at] ^= bit;
            bytes
        });
    }
    attacks.bytes("half of a seal cut off", &["in the middle of a record"], other, |bytes| {
        bytes[..bytes.len() - SEAL / 2].to_vec()
    });
    attacks.bytes("a byte after a seal", &["after their seal"], other, |bytes| [bytes, &[0]].concat());
    attacks.bytes("a whole stream twice in its file", &["after their seal"], other, |bytes| {
        [bytes, &bytes[HEADER..]].concat()
    });
    attacks.raw("a life's seal from another stream", &["are not those that were sealed"], move |dir| {
        let path = |(process, life): Stream| Bundle::open(dir).facts_path(process, life);
        let (mut mine, theirs) = (fs::read(path(other)).unwrap(), fs::read(path(later)).unwrap());
        mine.truncate(mine.len() - SEAL);
        mine.extend(&theirs[theirs.len() - SEAL..]);
        fs::write(path(other), mine).unwrap();
    });

    // Streams swapped with each other.
    let rename = move |dir: &Path, from: Stream, to: Stream| {
        let path = |(process, life): Stream| Bundle::open(dir).facts_path(process, life);
        fs::rename(path(from), path(to)).unwrap();
    };
    attacks.raw("an earlier life renamed to the later one", &["there is no file"], move |dir| {
        rename(dir, earlier, later);
    });
    attacks.raw("files of two lives exchanged", &["the wrong name", "there is no file"], move |dir| {
        let spare = (ProcessId(9999), Life(1));
        rename(dir, earlier, spare);
        rename(dir, later, earlier);
        rename(dir, spare, later);
    });
    attacks.resealed("two lives exchanged", &[], move |_, trace| {
        let (a, b) = (trace.streams.remove(&earlier).unwrap(), trace.streams.remove(&later).unwrap());
        trace.streams.insert(earlier, b);
        trace.streams.insert(later, a);
    });
    attacks.resealed("two ranks exchanged", &[], move |_, trace| {
        let (a, b) = (trace.streams.remove(&other).unwrap(), trace.streams.remove(&later).unwrap());
        trace.streams.insert(other, b);
        trace.streams.insert(later, a);
    });
    attacks.raw("a stream of an unknown process added", &["belongs to no process"], move |dir| {
        let path = |process| Bundle::open(dir).facts_path(process, Life(1));
        fs::copy(path(other.0), path(ProcessId(9999))).unwrap();
    });
    attacks.resealed("a stream of an unknown process added", &[], move |_, trace| {
        let stream = trace.streams[&other].clone();
        trace.streams.insert((ProcessId(9999), Life(1)), stream);
    });
    attacks.raw("a file of no life among the facts", &["belongs to no process"], |dir| {
        fs::write(dir.join("facts/story.facts"), "once").unwrap();
    });

    // The supervisor's facts.
    attacks.without("lifeStarted (first life)", &["do not state that"], |fact| {
        matches!(fact, Fact::LifeStarted { life: Life(1), .. })
    });
    attacks.without("lifeStarted (second life)", &["was never started", "do not state that"], |fact| {
        matches!(fact, Fact::LifeStarted { life: Life(2), .. })
    });
    attacks.without("begun", &["do not state that the application started"], |fact| *fact == Fact::Begun);
    attacks.without("injecting", &["do not state that it was injected"], |fact| {
        matches!(fact, Fact::Injecting { .. })
    });
    attacks.without("failed", &["ended no process"], |fact| matches!(fact, Fact::Failed { .. }));
    attacks.without("detected", &["was never detected"], |fact| matches!(fact, Fact::Detected { .. }));
    attacks.without("completed", &["do not state that the run completed"], |fact| *fact == Fact::Completed);
    attacks.resealed(
        "a fault's facts removed, and its account edited",
        &["missing from the supervisor's facts", "without a planned fault"],
        |manifest, trace| {
            let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
            facts.retain(|(_, fact)| {
                !matches!(fact, Fact::Injecting { .. } | Fact::Failed { .. } | Fact::Ineffective { .. })
            });
            manifest.faults.iter_mut().for_each(|it| it.1 = FaultState::Pending);
        },
    );
    attacks.resealed("the beginning moved to the end", &["out of order"], |_, trace| {
        let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
        let at = facts.iter().position(|(_, fact)| *fact == Fact::Begun).unwrap();
        let (_, fact) = facts.remove(at);
        let end = facts.len() - 1;
        facts.insert(end, (facts[end].0, fact));
    });
    attacks.resealed("the beginning moved to the front", &["out of order"], |_, trace| {
        let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
        let at = facts.iter().position(|(_, fact)| *fact == Fact::Begun).unwrap();
        let (_, fact) = facts.remove(at);
        facts.insert(0, (Time::ZERO, fact));
    });
    attacks.resealed("a second beginning", &["the application started 2 times"], |_, trace| {
        let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
        let at = facts.iter().position(|(_, fact)| *fact == Fact::Begun).unwrap();
        facts.insert(at, facts[at].clone());
    });
    attacks.resealed("a fact after the end", &["after the end of the run"], |_, trace| {
        let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
        facts.push((facts[facts.len() - 1].0, Fact::Left(faultline_core::ClusterId(0))));
    });
    attacks.resealed("a permanent cluster that left", &["but it has no `leavesAfter`"], |_, trace| {
        insert_before_end(trace, Fact::Left(faultline_core::ClusterId(0)));
    });
    attacks.resealed("a permanent cluster that joined", &["but it has no `joinsAfter`"], |_, trace| {
        let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
        let at = facts.iter().position(|(_, fact)| *fact == Fact::Begun).unwrap();
        facts.insert(at + 1, (facts[at].0, Fact::Joined(faultline_core::ClusterId(0))));
    });
    attacks.resealed("the end of a life that never started", &["not the newest life"], |_, trace| {
        let (process, life) = (ProcessId(0), Life(9));
        let (storage, by) = (StorageFate::Kept, EndedBy::Silence);
        insert_before_end(trace, Fact::Failed { process, life, storage, by });
    });
    attacks.resealed(
        "a cause other than a fault given for a loss",
        &["does not follow from", "ended no process"],
        |_, trace| {
            for (_, fact) in trace.streams.get_mut(&SUPERVISOR).unwrap() {
                if let Fact::Failed { by, storage, .. } = fact {
                    (*by, *storage) = (EndedBy::Silence, StorageFate::Lost);
                }
            }
        },
    );
    attacks.resealed("an injected fault said to be ineffective", &["more than one outcome"], |_, trace| {
        insert_before_end(trace, Fact::Ineffective { no: FaultNo(0), reason: "late".into() });
    });
    attacks.resealed("an unknown fault said to be ineffective", &["is not in the plan"], |_, trace| {
        insert_before_end(trace, Fact::Ineffective { no: FaultNo(77), reason: "late".into() });
    });
    attacks.resealed(
        "a second life of the supervisor",
        &["of the supervisor, which does not exist"],
        |_, trace| {
            trace.streams.insert((ProcessId::SUPERVISOR, Life(1)), Vec::new());
        },
    );
    attacks.resealed(
        "an unknown link said to have changed",
        &["impossible in this federation"],
        |_, trace| {
            let ends = (faultline_core::ClusterId(500), faultline_core::ClusterId(600));
            let change = Change::Link { from: ends.0, to: ends.1, properties: Default::default() };
            insert_before_end(trace, Fact::Changed(Box::new(change)));
        },
    );
    attacks.resealed("a fact of the supervisor among those of a rank", &["impossible"], move |_, trace| {
        let facts = trace.streams.get_mut(&other).unwrap();
        facts.push((facts.last().unwrap().0, Fact::Completed));
    });
    attacks.resealed("another fault injected than planned", &["is not in the plan"], |_, trace| {
        for (_, fact) in trace.streams.get_mut(&SUPERVISOR).unwrap() {
            if let Fact::Injecting { fault, .. } = fact {
                **fault = Fault::pause(ProcessId(1), Span(1));
            }
        }
    });
    type Test = fn(&Fact) -> bool;
    let stated_once: [(&str, Test); 3] = [
        ("injecting", |fact| matches!(fact, Fact::Injecting { .. })),
        ("failed", |fact| matches!(fact, Fact::Failed { .. })),
        ("detected", |fact| matches!(fact, Fact::Detected { .. })),
    ];
    for (name, is_it) in stated_once {
        attacks.resealed(format!("one fact `{name}` doubled"), &["more than once"], move |_, trace| {
            let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
            let at = facts.iter().position(|(_, fact)| is_it(fact)).unwrap();
            facts.insert(at, facts[at].clone());
        });
    }
    attacks.resealed(
        "storage that was kept said to be lost",
        &["did not affect the storage of life"],
        |_, trace| {
            for (_, fact) in trace.streams.get_mut(&SUPERVISOR).unwrap() {
                match fact {
                    Fact::Failed { storage, .. } => *storage = other_fate(*storage),
                    Fact::LifeStarted { boot, .. } if *boot == Boot::Restarted => *boot = Boot::Replaced,
                    Fact::LifeStarted { boot, .. } if *boot == Boot::Replaced => *boot = Boot::Restarted,
                    _ => {}
                }
            }
        },
    );
    attacks.resealed("a link said to have changed", &["do not state that the link"], |manifest, _| {
        manifest.links[0].since = Some(Time(1));
    });
    attacks.resealed("a part reported as durable once more", &["had not saved it"], move |_, trace| {
        let facts = trace.streams.get_mut(&other).unwrap();
        let durable = facts.iter().find(|(_, fact)| matches!(fact, Fact::Durable(_))).unwrap().1.clone();
        facts.push((facts.last().unwrap().0, durable));
    });
    for (which, is_saved) in [("that a checkpoint contains", true), ("of an earlier life", false)] {
        attacks.resealed(
            format!("the send and the transmissions of the last message {which} removed"),
            &["was delivered, but never transmitted"],
            move |_, trace| remove_send(trace, earlier, is_saved),
        );
    }
    attacks.resealed("results removed", &["never reported its result"], |_, trace| {
        for stream in trace.streams.values_mut() {
            stream.retain(|(_, fact)| !matches!(fact, Fact::Finished(_)));
        }
    });
    for (stream, who) in streams.iter().skip(1).cloned() {
        let is_rank = manifest.processes[stream.0.index()].role == Role::RANK;
        if stream == earlier || !is_rank {
            attacks.resealed(format!("{who} cut to 10 %"), &[], move |_, trace| {
                let facts = trace.streams.get_mut(&stream).unwrap();
                facts.truncate(facts.len() / 10);
            });
        }
        if stream == earlier {
            attacks.resealed(format!("first half of {who} removed"), &[], move |_, trace| {
                let facts = trace.streams.get_mut(&stream).unwrap();
                facts.drain(..facts.len() / 2);
            });
        }
    }
    for (stream, who) in streams.into_iter().skip(1) {
        let told: &[_] = if manifest.processes[stream.0.index()].role == Role::RANK && stream != earlier {
            &["never reported its result"]
        } else {
            &[]
        };
        if stream != earlier && !told.is_empty() {
            attacks.resealed(format!("all facts of {who} removed"), told, move |_, trace| {
                trace.streams.get_mut(&stream).unwrap().clear();
            });
        }
        if !told.is_empty() {
            attacks.resealed(format!("last half of {who} removed"), &[], move |_, trace| {
                let facts = trace.streams.get_mut(&stream).unwrap();
                facts.truncate(facts.len() / 2);
            });
            attacks.resealed(
                format!("first fact of {who} removed"),
                &["is not at the position that its witness states"],
                move |_, trace| {
                    trace.streams.get_mut(&stream).unwrap().remove(0);
                },
            );
            attacks.resealed(format!("one sent message of {who} removed"), &[], move |_, trace| {
                let facts = trace.streams.get_mut(&stream).unwrap();
                let at = facts.iter().position(|(_, fact)| matches!(fact, Fact::Sent { .. })).unwrap();
                facts.remove(at);
            });
        }
    }

    // Attacks on the manifest and the federation file.
    const EDITED: &[&str] = &["was changed after the run"];
    attacks.raw("federation.yaml: a comment added", EDITED, |dir| {
        let path = dir.join("federation.yaml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{text}# nothing\n")).unwrap();
    });
    attacks.raw("federation.yaml: more nodes", EDITED, |dir| {
        let path = dir.join("federation.yaml");
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replacen("nodes: ", "nodes: 1", 1);
        assert_ne!(text, changed);
        fs::write(path, changed).unwrap();
    });
    attacks.raw("federation.yaml emptied", EDITED, |dir| fs::write(dir.join("federation.yaml"), "").unwrap());
    attacks.raw("federation.yaml removed", &[], |dir| fs::remove_file(dir.join("federation.yaml")).unwrap());
    attacks.raw("manifest.json removed", &[], |dir| fs::remove_file(dir.join("manifest.json")).unwrap());
    attacks.raw("manifest.json cut", &[], |dir| {
        let path = dir.join("manifest.json");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });
    attacks.raw("facts removed", &[], |dir| fs::remove_dir_all(dir.join("facts")).unwrap());
    attacks.entry("digest removed", &["contains no digest"], |it| {
        drop(it.as_object_mut().unwrap().remove("digest"))
    });
    attacks.entry("digest changed", EDITED, |it| it["digest"] = "00".repeat(32).into());
    attacks.entry("digest: null", EDITED, |it| it["digest"] = Value::Null);
    attacks.entry("format: 2", &[], |it| it["format"] = 2.into());
    let fields: [(&str, Value); 20] = [
        ("tool", "0.0.0".into()),
        ("protocol", "none".into()),
        ("promises", serde_json::to_value(without_promises(&manifest)).unwrap()),
        ("name", "another".into()),
        ("backend", "kubernetes".into()),
        ("seed", 12345.into()),
        ("clusters", Value::Array(vec![])),
        ("processes", Value::Array(vec![])),
        ("bounds", Value::Null),
        ("copies", Value::Null),
        ("volatileStorage", (!manifest.volatile_storage).into()),
        ("plan", Value::Array(vec![])),
        ("faults", Value::Array(vec![])),
        ("links", Value::Array(vec![])),
        ("expected", Value::Null),
        ("outcome", Value::Null),
        ("outcome", "Deadline".into()),
        ("startedUnixMs", 77.into()),
        ("duration", 1.into()),
        ("facts", Value::Array(vec![])),
    ];
    for (field, value) in fields {
        attacks.entry(format!("`{field}: {value}`"), EDITED, move |it| it[field] = value.clone());
    }
    for field in ["clusters", "processes", "plan", "faults", "links", "facts"] {
        attacks.entry(format!("last entry of `{field}` removed"), EDITED, move |it| {
            it[field].as_array_mut().unwrap().pop().unwrap();
        });
        attacks.entry(format!("`{field}` removed"), &[], move |it| {
            it.as_object_mut().unwrap().remove(field).unwrap();
        });
    }
    attacks.entry("an expected digest changed", EDITED, |it| {
        it["expected"]["digests"][0][1] = "0123456789abcdef0123456789abcdef".into();
    });

    const NOT_DERIVED: &[&str] = &["does not follow from federation.yaml"];
    attacks.resealed("`name` changed", NOT_DERIVED, |it, _| it.name = "another".into());
    attacks.resealed("`protocol: none`", NOT_DERIVED, |it, _| it.protocol = "none".into());
    attacks.resealed("`promises` emptied", NOT_DERIVED, |it, _| it.promises = without_promises(it));
    attacks.resealed("`protocol: none`, and `promises` emptied", NOT_DERIVED, |it, _| {
        it.protocol = "none".into();
        it.promises = without_promises(it);
    });
    attacks.resealed("another scope of rollbacks", NOT_DERIVED, |it, _| {
        it.promises.scope = match it.promises.scope {
            Scope::Process => Scope::Federation,
            Scope::Cluster | Scope::Federation => Scope::Process,
        };
    });
    attacks.resealed("`clusters` emptied", NOT_DERIVED, |it, _| it.clusters.clear());
    attacks.resealed("`processes` emptied", NOT_DERIVED, |it, _| it.processes.clear());
    attacks.resealed("a process renamed", NOT_DERIVED, |it, _| it.processes[0].name = "unknown".into());
    attacks.resealed("a process in another cluster", NOT_DERIVED, |it, _| {
        it.processes[0].cluster = faultline_core::ClusterId(1);
    });
    attacks.resealed("`bounds: null`", NOT_DERIVED, |it, _| it.bounds = None);
    attacks.resealed("`bounds` widened", NOT_DERIVED, |it, _| {
        it.bounds.as_mut().unwrap().detect_after = Span::from_secs(1000);
    });
    attacks.resealed("`copies: null`", NOT_DERIVED, |it, _| it.copies = None);
    attacks.resealed("`copies` reduced", NOT_DERIVED, |it, _| it.copies.as_mut().unwrap().replicas -= 1);
    attacks.resealed("`volatileStorage` changed", NOT_DERIVED, |it, _| it.volatile_storage ^= true);
    attacks.resealed("`plan` emptied", NOT_DERIVED, |it, _| it.plan.clear());
    attacks.resealed("`plan` and `faults` emptied", NOT_DERIVED, |it, _| {
        it.plan.clear();
        it.faults.clear();
    });
    attacks.resealed("`links` emptied", NOT_DERIVED, |it, _| it.links.clear());
    attacks.resealed("a link with another request", NOT_DERIVED, |it, _| {
        it.links[0].requested.latency = Span::from_secs(1);
    });
    attacks.resealed("`expected: null`", NOT_DERIVED, |it, _| it.expected = None);
    attacks.resealed("an expected result removed", NOT_DERIVED, |it, _| {
        it.expected.as_mut().unwrap().digests.pop();
    });
    attacks.resealed(
        "`faults` emptied",
        &["outcomes for 0 faults", "disagree about the outcome"],
        |it, _| {
            it.faults.clear();
        },
    );
    attacks.resealed("a fault said to be ineffective", &["disagree about the outcome"], |it, _| {
        it.faults[0].1 = FaultState::Ineffective("it was late".into());
    });
    attacks.resealed("`outcome` changed", &["not according to the manifest"], |it, _| {
        it.outcome = Some(Outcome::Deadline);
    });
    attacks.resealed("`duration` shortened", &["the run ended after"], |it, _| it.duration = Span(1));
    attacks.resealed("federation.yaml: another name", NOT_DERIVED, |it, _| {
        let named = format!("name: {}", it.name);
        it.federation = it.federation.replacen(&named, "name: another", 1);
    });
    // Judged without setting up 29,999 processes.
    attacks.resealed("federation.yaml: as many nodes as possible", NOT_DERIVED, |it, _| {
        let text = it.federation.clone();
        let (before, after) = text.split_once("nodes: ").unwrap();
        let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
        it.federation = format!("{before}nodes: 29999{after}");
        assert_ne!(it.federation, text);
    });
    attacks.resealed("federation.yaml emptied", &["federation.yaml cannot be used"], |it, _| {
        it.federation.clear()
    });
    if manifest.backend == BackendKind::Simulate {
        attacks.resealed("`backend` changed", &["was not measured"], |it, _| it.backend = BackendKind::Local);
        attacks.resealed(
            "the federation said to have been paused",
            &["a user changed the simulated federation"],
            |_, trace| {
                let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
                let at = facts.iter().position(|(_, fact)| *fact == Fact::Begun).unwrap();
                for pauses in [false, true] {
                    let change = Fact::Changed(Box::new(Change::Pause(pauses)));
                    facts.insert(at + 1, (facts[at].0, change));
                }
            },
        );
        if matches!(manifest.plan[0].trigger, Trigger::At(_)) {
            attacks.resealed(
                "a fault injected later than planned",
                &["was not injected at its planned time"],
                |_, trace| {
                    let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
                    let is_later = |(_, fact): &(Time, Fact)| {
                        matches!(fact, Fact::Failed { .. } | Fact::Injecting { .. })
                    };
                    let first = facts.iter().position(is_later).unwrap();
                    let next = first + facts[first..].iter().position(|it| !is_later(it)).unwrap();
                    let time = facts[next].0;
                    facts[first..next].iter_mut().for_each(|it| it.0 = time);
                },
            );
        }
        attacks.resealed("`effects` of faults added", &["the effects of faults were measured"], |it, _| {
            it.effects = vec![EffectEntry { no: FaultNo(0), due: Time(0), on: Vec::new(), idle: Vec::new() }];
        });
        attacks.resealed("`duration` lengthened", &["the run ended after"], |it, _| it.duration.0 *= 10);
        attacks.resealed(
            "the start of a second life moved to the end",
            &["before it was started"],
            |_, trace| {
                let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
                let is_it = |fact: &Fact| matches!(fact, Fact::LifeStarted { life: Life(2), .. });
                let at = facts.iter().position(|(_, fact)| is_it(fact)).unwrap();
                let (_, fact) = facts.remove(at);
                let end = facts.len() - 1;
                facts.insert(end, (facts[end].0, fact));
            },
        );
        attacks.resealed(
            "all times moved before the beginning",
            &["before the application started", "before it was started"],
            |_, trace| {
                let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
                let end = facts.last().unwrap().0;
                let begun = facts.iter().position(|(_, fact)| *fact == Fact::Begun).unwrap();
                facts[begun..].iter_mut().for_each(|it| it.0 = end);
            },
        );
    } else {
        attacks.resealed("`backend` changed", &["although they are simulated"], |it, _| {
            it.backend = BackendKind::Simulate
        });
        attacks.resealed("measurements removed", &["was not measured"], |it, _| {
            it.links.iter_mut().for_each(|it| it.measured = None);
        });
        attacks
            .resealed("one measurement removed", &["was not measured"], |it, _| it.links[0].measured = None);
        attacks.resealed("a measured link said to have changed", &["was not measured"], |it, _| {
            (it.links[0].measured, it.links[0].since) = (None, Some(Time(1)));
        });
        attacks.resealed("measurements of a link changed", &["contradict each other"], |it, _| {
            it.links[0].observed = Some(LinkObserved { echoes: 50, outside: 51, mean: Span(0) });
        });
        attacks.resealed("a fault said to have affected another life", &["but did not end it"], |it, _| {
            for effect in it.effects.iter_mut().flat_map(|it| &mut it.on) {
                effect.life = Life(9);
            }
        });
        attacks.entry("a measurement changed", EDITED, |it| it["links"][0]["measured"]["latency"] = 1.into());
    }
    attacks.0
}

/// Removes, from all lives of a process, the send and the transmissions of a message that was delivered: the last one
/// that it sent in this life or, if `is_saved`, before the last checkpoint of this life. On a busy machine, no message
/// may have preceded that checkpoint; it is then one of another process.
fn remove_send(trace: &mut Trace, stream: Stream, is_saved: bool) {
    let delivery = |(_, fact): &(Time, Fact)| match fact {
        Fact::Delivered(id) => Some(*id),
        _ => None,
    };
    let delivered: BTreeSet<MessageId> = trace.streams.values().flatten().filter_map(delivery).collect();
    let last_sent = |(process, life): Stream| {
        let facts = &trace.streams[&(process, life)];
        let saved = facts.iter().rev().find_map(|(_, fact)| match fact {
            Fact::Saved(saved) if saved.0.owner == process => Some(saved.1.upto.index()),
            _ => None,
        });
        let end = if is_saved { saved? } else { facts.len() };
        let sent = facts[..end].iter().rev().find_map(|(_, fact)| match fact {
            Fact::Sent { id, .. } if delivered.contains(id) => Some(*id),
            _ => None,
        });
        Some((process, sent?))
    };
    let others = trace.streams.keys().copied().filter(|_| is_saved);
    let (process, sent) =
        [stream].into_iter().chain(others).find_map(last_sent).expect("a delivered message");
    for (_, stream) in trace.streams.iter_mut().filter(|((of, _), _)| *of == process) {
        stream.retain(|(_, fact)| match fact {
            Fact::Sent { id, .. } | Fact::Transmitted { id, .. } => *id != sent,
            _ => true,
        });
    }
}

/// Inserts a fact of the supervisor before its last one.
fn insert_before_end(trace: &mut Trace, fact: Fact) {
    let facts = trace.streams.get_mut(&SUPERVISOR).unwrap();
    let last = facts.len() - 1;
    facts.insert(last, (facts[last].0, fact));
}

/// Returns the other possible fate of the storage.
fn other_fate(storage: StorageFate) -> StorageFate {
    match storage {
        StorageFate::Kept => StorageFate::Lost,
        StorageFate::Lost => StorageFate::Kept,
    }
}

/// Returns promises that retain only the scope of the manifest's promises.
fn without_promises(manifest: &Manifest) -> Promises {
    Promises::of_scope(manifest.promises.scope)
}

/// Copies the files of a record that its judgement uses.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("facts")).unwrap();
    for name in ["manifest.json", "federation.yaml"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for entry in fs::read_dir(from.join("facts")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join("facts").join(path.file_name().unwrap())).unwrap();
    }
}
