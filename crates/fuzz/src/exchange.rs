//! The lines that a run exchanges with its programs. If a repeated run differs, they show the reply with which it began to
//! differ.

use std::cell::RefCell;

use faultline_api::Federation;
use faultline_catalog::show_lines;
use serde_json::Value;

/// The maximum length of all recorded lines, in bytes. Those that follow are not compared.
const MOST_BYTES: usize = 32 << 20;
/// The number of characters that a message quotes before a difference, and in total.
const BEFORE: usize = 40;
const QUOTED: usize = 120;

/// The events that programs answered, in order, without the first one of each execution.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    answers: Vec<Answer>,
    bytes: usize,
}

#[derive(Debug)]
struct Answer {
    /// The process ID of the execution of the program.
    execution: u32,
    program: String,
    event: String,
    reply: String,
}

thread_local! {
    static EXCHANGE: RefCell<Exchange> = RefCell::default();
}

/// Calls `work`, which runs this federation. Returns what this thread exchanged with the federation's programs, and the
/// result.
pub(crate) fn with_exchange<T>(federation: &Federation, work: impl FnOnce() -> T) -> (Exchange, T) {
    let spec = &federation.spec;
    if spec.protocol.program().is_none() && spec.application.program().is_none() {
        return (Exchange::default(), work());
    }
    show_lines(Some(|execution, program, line| {
        EXCHANGE.with_borrow_mut(|it| it.add(execution, program, line));
    }));
    let result = work();
    show_lines(None);
    (EXCHANGE.take(), result)
}

impl Exchange {
    fn add(&mut self, execution: u32, program: &str, line: &str) {
        if self.bytes > MOST_BYTES {
            return;
        }
        self.bytes += line.len();
        match (line.split_once(' '), self.answers.last_mut()) {
            (Some((">", event)), _) => {
                let (program, event) = (program.to_owned(), event.to_owned());
                self.answers.push(Answer { execution, program, event, reply: String::new() });
            }
            // How an execution begins depends on whether an earlier run has used it.
            (Some(_), Some(Answer { event, .. })) if event.starts_with(r#"{"n":0,"#) => {
                drop(self.answers.pop());
            }
            (Some((_, reply)), Some(last)) => reply.clone_into(&mut last.reply),
            _ => {}
        }
    }

    /// Returns a sentence about the first event to which a program replied differently in a repeated run; `None` if there
    /// is none.
    pub(crate) fn first_difference(&self, repeated: &Exchange) -> Option<String> {
        let pairs = self.answers.iter().zip(&repeated.answers);
        let differs = |(one, other): (&Answer, &Answer)| {
            one.event != other.event || !is_same_json(&one.reply, &other.reply)
        };
        let place = pairs.clone().position(differs)?;
        let (answer, other) = pairs.into_iter().nth(place)?;
        // Different events do not follow from the replies.
        if answer.event != other.event {
            return None;
        }
        let event: Value = serde_json::from_str(&answer.event).ok()?;
        let (one, other) = excerpts(&answer.reply, &other.reply);
        Some(format!(
            "{} replied to event {} (`{}`) with `{one}`, and with `{other}` when the schedule was repeated",
            self.process(place),
            event["n"],
            event["event"].as_str().unwrap_or_default(),
        ))
    }

    /// Names the process, the program and the life that gave an answer.
    fn process(&self, place: usize) -> String {
        let Answer { execution, program, .. } = &self.answers[place];
        let of_execution = self.answers[..=place].iter().rev().filter(|it| it.execution == *execution);
        let mut starts = of_execution.filter(|it| it.event.starts_with(r#"{"n":1,"event":"start""#));
        let start: Value =
            starts.next().and_then(|it| serde_json::from_str(&it.event).ok()).unwrap_or_default();
        let me = start["me"].as_u64().unwrap_or_default();
        let name = start["names"][me as usize].as_str().unwrap_or("a process");
        match start["life"].as_u64() {
            Some(life) => format!("{name} ({program}, life {life})"),
            None => format!("{name} ({program})"),
        }
    }
}

/// Returns whether two lines are the same JSON. The order of the fields has no meaning.
fn is_same_json(one: &str, other: &str) -> bool {
    let read = |text| serde_json::from_str::<Value>(text).ok();
    one == other || read(one).is_some_and(|it| Some(it) == read(other))
}

/// Returns the parts of two different lines in which they begin to differ.
fn excerpts(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let first = same.saturating_sub(BEFORE);
    let excerpt = |line: &str| {
        let before = if first > 0 { "…" } else { "" };
        let after = if line.chars().nth(first + QUOTED).is_some() { "…" } else { "" };
        format!("{before}{}{after}", line.chars().skip(first).take(QUOTED).collect::<String>())
    };
    (excerpt(one), excerpt(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an exchange in which the second process replies with this stamp.
    fn exchange(execution: u32, stamp: &str) -> Exchange {
        let mut exchange = Exchange::default();
        for line in [
            r#"> {"n":0,"event":"hello"}"#,
            r#"< {"n":0,"contract":1}"#,
            r#"> {"n":1,"event":"start","me":1,"life":2,"names":["a-0","a-1"]}"#,
            r#"< {"n":1}"#,
            r#"> {"n":2,"event":"sent"}"#,
            &format!(r#"< {{"n":2,"do":[{{"do":"transmit","stamp":{stamp}}}]}}"#),
        ] {
            exchange.add(execution, "p.py", line);
        }
        exchange
    }

    #[test]
    fn the_first_reply_that_differs_is_named() {
        let first = exchange(7, "{\"a\":1,\"b\":2}");
        assert_eq!(first.first_difference(&exchange(8, "{\"b\":2,\"a\":1}")), None);
        let text = first.first_difference(&exchange(8, "{\"a\":1,\"b\":3}")).unwrap();
        assert_eq!(
            text,
            "a-1 (p.py, life 2) replied to event 2 (`sent`) with `…o\":[{\"do\":\"transmit\",\"stamp\":{\"a\":1,\"b\":2}}]}`, \
             and with `…o\":[{\"do\":\"transmit\",\"stamp\":{\"a\":1,\"b\":3}}]}` when the schedule was repeated"
        );
    }

    #[test]
    fn different_events_are_not_a_reply() {
        let mut later = exchange(7, "1");
        later.answers[1].event.push(' ');
        assert_eq!(later.first_difference(&exchange(8, "2")), None);
    }
}
