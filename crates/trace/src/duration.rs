//! Times and durations as text for readers.

use faultline_core::Span;

/// Times of at least this many seconds are shown as hours, minutes and seconds.
pub const LONG: f64 = 1000.0;

/// Formats a duration in seconds for readers.
pub fn span(seconds: f64) -> String {
    if seconds >= LONG { clock(seconds.round()) } else { Span((seconds * 1e9) as u64).to_string() }
}

/// Formats a duration for readers.
pub fn lasted(span: Span) -> String {
    self::span(span.as_secs_f64())
}

/// Formats a time for readers, in seconds since the application started; negative before the start.
pub fn instant(seconds: f64) -> String {
    let hundredths = (seconds * 100.0).round() / 100.0;
    if hundredths >= LONG { clock(hundredths) } else { format!("{hundredths:.2} s") }
}

/// Formats a non-negative number of seconds as `h:mm:ss`, with two decimals if the number is not whole.
pub fn clock(seconds: f64) -> String {
    let whole = seconds.floor() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, seconds - (whole - whole % 60) as f64);
    if seconds.fract() == 0.0 {
        format!("{hours}:{minutes:02}:{rest:02.0}")
    } else {
        format!("{hours}:{minutes:02}:{rest:05.2}")
    }
}

/// Formats a remaining time in seconds with the precision of an estimate.
pub fn rough(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_shown_in_hours_minutes_and_seconds() {
        assert_eq!([0.012, 12.345, 999.4].map(span), ["12.0 ms", "12.3 s", "999 s"]);
        assert_eq!([1109.82, 3600.0, 36_061.2].map(span), ["0:18:30", "1:00:00", "10:01:01"]);
        assert_eq!([-0.5, 0.0, 999.99, 999.999].map(instant), ["-0.50 s", "0.00 s", "999.99 s", "0:16:40"]);
        assert_eq!([1109.82, 3605.5, 7200.0].map(instant), ["0:18:29.82", "1:00:05.50", "2:00:00"]);
    }
}
