//! Ending lives at places with agents, several of them at the same time.

use std::rc::Rc;
use std::time::Duration;

use faultline_core::{Life, ProcessId, Span};
use tokio::time::Instant;
use tracing::warn;

use super::messages::ToAgent;
use super::orders::{Answer, PATIENCE, Pending};
use super::place_registry::Wanted;
use super::places::Shared;
use crate::clock::AgentClock;
use crate::supervise::places::HostEvent;

/// Time within which an agent must confirm that it is ready to end a life. Otherwise, the life is fenced.
const ARMED_WITHIN: Duration = Duration::from_millis(800);
/// Bounds on the notice that agents receive before they end several lives at the same time. The notice is twice the
/// time that the slowest agent took to prepare. Agents start threads in the meantime.
const LEAST_NOTICE: Span = Span::from_millis(5);
const MOST_NOTICE: Span = Span::from_millis(250);

/// Lives that are to end at the same time.
pub(super) struct Kill {
    /// Each life, with the UID of its place if the life is hosted there or its storage must be removed, and with the
    /// pending order if an agent was asked to prepare.
    arming: Vec<(ProcessId, Life, Option<String>, Option<Pending>)>,
    wipe: bool,
}

impl Shared {
    /// Begins to kill lives simultaneously: tells their agents to prepare. Nothing is launched at these
    /// places until the kill is complete.
    pub(super) fn arm(&self, lives: &[(ProcessId, Life)], wipe: bool) -> Kill {
        let mut arming = Vec::with_capacity(lives.len());
        for &(process, life) in lives {
            let (is_concerned, place) = self.with(process, |entry| {
                entry.wanted.take_if(|(wanted, _)| *wanted == life);
                entry.ending += 1;
                (entry.life == Some(life) || wipe, entry.place.as_ref().map(|it| it.uid.clone()))
            });
            let place = place.filter(|_| is_concerned);
            let order = |order| ToAgent::Arm { order, life };
            let pending = is_concerned.then(|| self.order(process, order)).flatten();
            arming.push((process, life, place, pending));
        }
        Kill { arming, wipe }
    }

    /// Waits until all agents have responded or exceeded the time limit. Then kills the lives whose agents are ready,
    /// and fences the others.
    pub(super) async fn carry_out(self: Rc<Self>, Kill { arming, wipe }: Kill) {
        let by = Instant::now() + ARMED_WITHIN;
        let mut armed = Vec::with_capacity(arming.len());
        let mut seen = Vec::with_capacity(arming.len());
        let mut slowest = Span::ZERO;
        for (process, life, place, pending) in arming {
            match (self.answered(pending, by).await, place) {
                (Some((order, Answer::Armed { asked, shown, arrived })), place) => {
                    slowest = slowest.max(Span(arrived - asked));
                    self.with(process, |entry| {
                        if let Some(agent) = &mut entry.agent {
                            let reading = AgentClock::read(self.place_context.clock, asked, shown, arrived);
                            agent.clock = agent.clock.better(reading);
                        }
                    });
                    armed.push((process, life, place, order));
                }
                (_, Some(place)) => {
                    seen.push(self.seen(process, life, None, None));
                    self.fence(process, life, &place, wipe, self.replace_after);
                }
                // Either the life is not hosted and no storage is wiped, or the process has no place.
                (_, None) => self.ended(process, life, wipe),
            }
        }
        // Each agent acts by its own clock, so the order must reach even the slowest agent before `moment`.
        let moment = self.place_context.clock.now() + (slowest * 2).clamp(LEAST_NOTICE, MOST_NOTICE);
        let several = armed.len() > 1;
        let fire = |(process, life, place, order)| {
            let clock = self.with(process, |entry| entry.agent.as_ref().map(|agent| agent.clock.clock));
            let at = clock.filter(|_| several).map(|clock| clock.monotonic_at(moment));
            (process, life, place, self.order_again(process, order, ToAgent::Fire { order, wipe, at }))
        };
        let fired: Vec<_> = armed.into_iter().map(fire).collect();
        let by = Instant::now() + PATIENCE;
        for (process, life, place, pending) in fired {
            match (self.answered(pending, by).await, place) {
                (Some((_, Answer::Done { killed, problem: None })), _) => {
                    seen.extend(killed.map(|it| self.seen(process, life, Some(it.stopped), Some(it.exited))));
                    self.ended(process, life, false);
                }
                (other, Some(place)) => {
                    seen.push(self.seen(process, life, None, None));
                    warn!(%process, %life, ?other, "the agent did not confirm that it ended the process");
                    // An agent that reports a failure would fail again.
                    let wait = if other.is_some() { Duration::ZERO } else { self.replace_after };
                    self.fence(process, life, &place, wipe, wait);
                }
                (_, None) => self.ended(process, life, wipe),
            }
        }
        if !seen.is_empty() {
            self.place_context.host_events.put(HostEvent::Stopped(seen));
        }
    }

    /// Fences a life that should have ended but may still be running: it is never accepted again. Asks the provider to
    /// replace the place, unless the current agent sends a message within `wait`: an agent ends the life that it hosts
    /// before it hosts another.
    fn fence(self: &Rc<Self>, process: ProcessId, life: Life, place: &str, wipe: bool, wait: Duration) {
        let heard = self.with(process, |entry| entry.heard);
        let (shared, place) = (self.clone(), place.to_owned());
        let ask = async move {
            tokio::time::sleep(wait).await;
            let is_still_silent = shared.with(process, |entry| {
                entry.place.as_ref().is_some_and(|it| it.uid == place)
                    && (wait.is_zero() || entry.heard == heard)
            });
            if is_still_silent {
                let wanted = if wipe { Wanted::RemovalWithStorage } else { Wanted::Removal };
                shared.place_registry.ask(wanted, process, place);
            }
        };
        tokio::task::spawn_local(ask);
        self.ended(process, life, wipe);
    }
}
