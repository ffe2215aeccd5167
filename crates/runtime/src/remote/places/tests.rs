//! Tests of places with agents.

use std::sync::Arc;

use super::*;
use crate::clock::ClockSource;
use crate::secret::Keys;
use crate::supervise::places::HostEvents;
use crate::transport::tests::run;

const PROCESS: ProcessId = ProcessId(0);
const LIFE: Life = Life(1);

/// Returns the places of a process whose first life runs at `place`, with the record in `dir`.
fn hosting(dir: &std::path::Path, place: &AgentPlace) -> Remote {
    hosting_with(dir, place, Duration::from_secs(60))
}

/// Does the same; silent agents lose their places after `patience`.
fn hosting_with(dir: &std::path::Path, place: &AgentPlace, patience: Duration) -> Remote {
    let clock = Clock::start();
    let (host_events, _) = HostEvents::new(clock);
    let (keys, control) = (Keys::generate(1).unwrap(), place.address);
    let context = PlaceContext { clock, keys, description: Arc::default(), control, host_events };
    let names = Names { processes: vec!["p0".into()], ..Names::default() };
    let (journal, registry) = (Journal::default(), PlaceRegistry::default());
    registry.assign(1, [(PROCESS, place.clone())].into()).unwrap();
    let incomplete = [(PROCESS, [(LIFE, Some(place.uid.clone()))].into())].into();
    let of_run = ("run".into(), dir.to_owned());
    let remote = Remote::new(of_run, names, context, registry, patience, (journal, incomplete));
    remote.shared.with(PROCESS, |entry| {
        entry.place = Some(place.clone());
        entry.life = Some(LIFE);
    });
    remote
}

fn place() -> AgentPlace {
    AgentPlace { uid: "a".into(), address: SocketAddr::from(([127, 0, 0, 1], 1)) }
}

/// Connects an agent. Returns the orders that it receives.
fn connect(remote: &Remote, running: Option<Life>) -> mpsc::UnboundedReceiver<ToAgent> {
    let (words, orders) = mpsc::unbounded_channel();
    let clock = AgentClock::read(remote.shared.place_context.clock, 0, 5_000_000, 2_000_000);
    let clock_source = ClockSource::of_this_process();
    let ready = Ready { life: running, holds_storage: true, abilities: None, clock_source };
    let here = IpAddr::from([127, 0, 0, 1]);
    remote.shared.ready(PROCESS, &place(), &ready, words, clock, here);
    orders
}

/// Returns whether the agent is to keep the storage of a life that it is told to launch.
fn keeps_storage(orders: &mut mpsc::UnboundedReceiver<ToAgent>) -> Option<bool> {
    std::iter::from_fn(|| orders.try_recv().ok()).find_map(|it| match it {
        ToAgent::Launch { keeps_storage, .. } => Some(keeps_storage),
        _ => None,
    })
}

/// An order to launch a life can get lost with the connection, together with the removal of the storage.
#[test]
fn storage_is_removed_until_a_life_without_it_connects() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = hosting(dir.path(), &place());
        remote.shared.with(PROCESS, |entry| (entry.life, entry.wipes) = (None, true));
        for (life, keeps) in [(2, false), (3, false), (4, true)] {
            let mut orders = connect(&remote, None);
            remote.launch(PROCESS, Life(life), Boot::Replaced).unwrap();
            assert_eq!(keeps_storage(&mut orders), Some(keeps), "life {life}");
            if life == 3 {
                remote.introduced(PROCESS, Life(3));
            }
        }
    });
}

#[test]
fn a_life_keeps_its_clock_while_its_agent_is_disconnected() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = hosting(dir.path(), &place());
        remote.shared.with(PROCESS, |entry| entry.life = None);
        let _orders = connect(&remote, None);
        remote.launch(PROCESS, Life(2), Boot::Fresh).unwrap();
        let clock = remote.clock(PROCESS);
        assert_ne!(clock, remote.shared.place_context.clock, "the agent is on another machine");
        remote.shared.unready(PROCESS, &place(), "disconnected".into());
        assert_eq!(remote.clock(PROCESS), clock);
        assert!(remote.clock_error(PROCESS) >= Span::from_millis(1));
    });
}

#[test]
fn an_order_to_resume_that_got_lost_is_repeated() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = hosting(dir.path(), &place());
        let _lost = connect(&remote, Some(LIFE));
        for paused in [true, false] {
            remote.pause(PROCESS, LIFE, paused).await.unwrap();
        }
        remote.shared.unready(PROCESS, &place(), "disconnected".into());
        let mut orders = connect(&remote, Some(LIFE));
        assert!(matches!(orders.try_recv(), Ok(ToAgent::Pause { life: LIFE, paused: false, .. })));
    });
}

/// Such a life sends no heartbeats whose absence would show that its place has failed.
#[test]
fn a_silent_place_of_a_life_that_has_not_connected_is_replaced() {
    for is_silent in [true, false] {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let mut remote = hosting_with(dir.path(), &place(), Duration::from_millis(20));
            remote.shared.with(PROCESS, |entry| entry.life = None);
            let mut orders = connect(&remote, None);
            remote.launch(PROCESS, Life(2), Boot::Fresh).unwrap();
            let requests = || remote.shared.place_registry.state().requests.len();
            let mut asked = 0;
            while asked < 3 && requests() == 0 {
                match orders.recv().await.unwrap() {
                    ToAgent::Clock if is_silent => {
                        remote.shared.unready(PROCESS, &place(), "disconnected".into());
                        while requests() == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    ToAgent::Clock => {
                        asked += 1;
                        remote.shared.said(PROCESS, &place(), ToPlace::Clock(1));
                    }
                    _ => {}
                }
            }
            assert_eq!(requests(), usize::from(is_silent));
        });
    }
}

#[test]
fn facts_that_cannot_be_written_make_a_life_incomplete_however_it_ends() {
    let place = place();
    for can_write in [true, false] {
        for end in [
            ToPlace::Ended { life: LIFE, status: "exit status: 0".into(), last_output: String::new() },
            ToPlace::Sent { upto: LIFE },
            ToPlace::Leaving,
        ] {
            run(async {
                let dir = tempfile::tempdir().unwrap();
                let bundle = Bundle::create(dir.path().join("run")).unwrap();
                if !can_write {
                    std::fs::create_dir(bundle.facts_path(PROCESS, LIFE)).unwrap();
                }
                let shared = hosting(bundle.dir(), &place).shared;
                shared.said(PROCESS, &place, ToPlace::Facts { life: LIFE, offset: 0, bytes: vec![1] });
                shared.said(PROCESS, &place, end.clone());
                assert_eq!(shared.is_complete(), can_write, "{end:?}");
            });
        }
    }
}
