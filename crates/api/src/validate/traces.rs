//! Checks the failure traces that trigger faults.

use faultline_core::Time;
use faultline_failures::text::duration;

use super::Check;
use crate::failure_trace::{MOST_TRACE_BYTES, chosen, explained, hits, parsed};
use crate::quantity::Duration;
use crate::resource::{MAX_CAUSE, MAX_CAUSES, NodeChoice, TraceTrigger};

impl Check<'_> {
    pub(super) fn trace(&mut self, path: &str, trace: &TraceTrigger) {
        self.at_most_entries(&format!("{path}.causes"), trace.causes.len(), MAX_CAUSES);
        for (index, cause) in trace.causes.iter().enumerate() {
            let length = cause.chars().count();
            if length > MAX_CAUSE {
                self.problem(
                    format!("{path}.causes[{index}]"),
                    format!("the cause is too long ({length} characters)"),
                    format!("write at most {MAX_CAUSE} characters"),
                );
            }
        }
        if let Some(of) = trace.of.filter(|it| !(1..=1_000_000).contains(it)) {
            return self.problem(
                format!("{path}.of"),
                format!("{of} nodes cannot have been observed"),
                "write a number between 1 and 1000000",
            );
        }
        for (field, speed) in [("speed", trace.speed), ("repairSpeed", trace.repair_speed)] {
            if let Some(speed) = speed.filter(|it| !(0.001..=1e9).contains(it)) {
                return self.problem(
                    format!("{path}.{field}"),
                    format!("the speed {speed} is out of range"),
                    "write a number between 0.001 and 1e9; 1 is the speed of the trace",
                );
            }
        }
        match (&trace.file, &trace.data) {
            (None, None) => {
                self.problem(
                    path,
                    "the trace has neither `file` nor `data`",
                    "write `file` with the path of a failure trace, or `data` with its text",
                );
            }
            (Some(_), Some(_)) => self.problem(
                format!("{path}.data"),
                "`file` and `data` cannot be combined",
                "keep one of the two",
            ),
            // Its content is checked once it has been read.
            (Some(file), None) => self.path_of_file(&format!("{path}.file"), file),
            (None, Some(data)) => self.trace_content(path, trace, data),
        }
    }

    fn trace_content(&mut self, path: &str, trace: &TraceTrigger, data: &str) {
        if data.len() > MOST_TRACE_BYTES {
            return self.problem(
                format!("{path}.data"),
                format!("the trace is too long ({} KiB; at most 512 KiB)", data.len().div_ceil(1 << 10)),
                "cut it with `faultline traces FILE --begin … --end … --out cut`, then write \
                 `file: cut/trace.csv`",
            );
        }
        let all = match parsed(trace) {
            Ok(all) => all,
            Err(error) => {
                let [message, help] = explained(&error);
                return self.problem(path, message, help);
            }
        };
        let end = all.last_event();
        if let Some(begin) = trace.begin.filter(|it| Time::ZERO + it.0 > end) {
            let lasts = duration(end.as_secs_f64());
            return self.problem(
                format!("{path}.begin"),
                format!("`begin` is after the end of the trace (found {begin}; the trace lasts {lasts})"),
                "write an earlier time, or omit it",
            );
        }
        if !self.sized {
            return;
        }
        let ranks = self.names().ranks();
        let is_sample = trace.nodes.unwrap_or_default() == NodeChoice::Sample;
        if is_sample && ranks as usize > all.observed {
            return self.problem(
                path,
                format!("{ranks} processes cannot stand for {} observed nodes", all.observed),
                "set `of` to the number of nodes that were observed, or use `nodes: fold`",
            );
        }
        let drawn = hits(trace, ranks, self.spec.seed(), self.spec.deadline()).len();
        self.draws(path, drawn, "choose fewer `causes`, a lower `speed`");
    }

    /// Checks that a fault that must end has a duration.
    pub(super) fn must_last(&mut self, path: &str, span: Option<Duration>, trace: Option<&TraceTrigger>) {
        let Some(trace) = trace else {
            if span.is_none() {
                self.problem(path, "only a `trace` supplies a duration", "add `for`");
            }
            return;
        };
        let Some(all) =
            span.is_none().then(|| trace.data.as_ref().and_then(|_| parsed(trace).ok())).flatten()
        else {
            return;
        };
        let unknown = chosen(trace, &all).filter(|it| it.repair().is_none()).count();
        if unknown > 0 {
            let of = chosen(trace, &all).count();
            self.problem(
                path,
                format!("the trace does not state how long {unknown} of {of} faults last"),
                "add `for`",
            );
        }
    }
}
