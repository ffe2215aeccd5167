//! Tests that text fits a terminal of 80 columns.

use crate::common::{CRASH, TestDirectory, small};

/// Returns what a command prints on a terminal with this many columns, without escape sequences.
fn printed(place: &TestDirectory, columns: u32, command: &str) -> String {
    let program = env!("CARGO_BIN_EXE_faultline");
    let output = place.on_terminal(&format!("stty cols {columns}; {program} {command}"), "xterm", true);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{command}: {printed}");
    let mut text = String::new();
    let mut parts = printed.split("\u{1b}[");
    text.push_str(parts.next().unwrap_or_default());
    // Each escape sequence ends with a letter.
    parts.for_each(|it| {
        text.push_str(it.split_once(|it: char| it.is_ascii_alphabetic()).map_or("", |it| it.1))
    });
    text.replace('\r', "\n")
}

#[test]
fn text_fits_a_terminal_of_80_columns() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.write("trace.json", include_str!("../../../failures/tests/data/tiny.json"));
    let long = |columns: u32, command: &str| -> Vec<String> {
        let text = printed(&place, columns, command);
        text.lines().filter(|it| it.chars().count() > columns as usize).map(str::to_owned).collect()
    };
    for command in [
        "run small.yaml --backend simulate --out run -v",
        "run small.yaml --backend simulate --out runs --repeat 2 --keep",
        "check run",
        "check run -v",
        "explain run",
        "plan small.yaml",
        "compare small.yaml --protocols hc3i,hierarchicalCoordinated --seeds 5 --out compare",
        "sweep small.yaml --set protocol.hc3i.checkpointEvery=100ms,300ms --seeds 2 --out sweep",
        "fuzz --runs 10 -v",
        "explore --nodes 1 --messages 1 --crashes 0",
        "reproduce hydee-table1 --out table1",
        "traces trace.json",
        "doctor",
        "samples",
    ] {
        assert_eq!(long(80, command), [""; 0], "{command}");
    }
    // Nothing is narrower than a terminal that is wide enough.
    let lines = |columns| printed(&place, columns, "check run -v");
    assert_eq!(lines(100), lines(200));
    assert_ne!(lines(80), lines(100));
}
