//! The colours and styles of all pages and pictures, which follow the reader's light or dark preference.

/// The colours, as variables.
pub const PALETTE: &str = include_str!("../assets/palette.css");
/// Classes `c0` to `c5`, which set the variable `--c` to the colour of a cluster.
pub const CLUSTERS: &str = ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}";
/// The styles of a page, without colours.
pub const PAGE: &str = include_str!("../assets/page.css");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns the light and the dark colours by name.
    fn palettes() -> [BTreeMap<&'static str, [f64; 3]>; 2] {
        let (light, dark) = PALETTE.split_once("@media").expect("the palette has dark colours");
        [light, dark].map(|text| {
            let colours =
                text.split(['{', ';', '}']).filter_map(|it| it.strip_prefix("--")?.split_once(":#"));
            let part = |hex: &str, at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
            colours.map(|(name, hex)| (name, [0, 2, 4].map(|at| part(hex, at)))).collect()
        })
    }

    /// Returns the contrast of two colours, as WCAG 2 defines it.
    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let luminance = |colour: [f64; 3]| {
            let linear = colour.map(|it| it / 255.0).map(|it| match it <= 0.04045 {
                true => it / 12.92,
                false => ((it + 0.055) / 1.055).powf(2.4),
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        };
        let (one, other) = (luminance(one), luminance(other));
        one.max(other) / one.min(other)
    }

    const CLUSTER_NAMES: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
    const STATES: [&str; 10] = [
        "undone",
        "recovering",
        "down",
        "working",
        "frozen",
        "stalled",
        "rerunning",
        "paused",
        "waiting",
        "finished",
    ];

    #[test]
    fn text_can_be_read_and_states_can_be_seen() {
        for colours in palettes() {
            let has = |front: &str, back: &str, least: f64| {
                let found = contrast(colours[front], colours[back]);
                assert!(found >= least, "--{front} on --{back}: {found:.2}");
            };
            for text in ["ink", "faint", "good", "bad", "open"] {
                has(text, "paper", 4.5);
                has(text, "wash", 4.5);
            }
            for chip in [("good", "good-wash"), ("bad", "bad-wash"), ("open", "open-wash")] {
                has(chip.0, chip.1, 4.5);
            }
            CLUSTER_NAMES.iter().for_each(|it| has(it, "paper", 4.5));
            STATES.iter().chain(&["resent"]).for_each(|it| has(it, "paper", 3.0));
        }
    }

    #[test]
    fn states_and_clusters_have_separate_colours() {
        for colours in palettes() {
            let all: Vec<_> = CLUSTER_NAMES.iter().chain(&STATES).map(|it| (it, colours[it])).collect();
            for (place, (one, a)) in all.iter().enumerate() {
                for (other, b) in &all[place + 1..] {
                    let distance = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(distance > 30.0, "--{one} and --{other}: {distance:.0}");
                }
            }
        }
    }

    #[test]
    fn every_share_of_time_has_the_colour_of_a_state() {
        let shares = PAGE.split("\n").filter(|it| it.starts_with(".spent ") && it.contains("background"));
        for colour in shares.flat_map(|it| it.split("background:var(--").skip(1)) {
            let colour = colour.split(')').next().unwrap();
            assert!(STATES.contains(&colour), "{colour}");
        }
    }
}
