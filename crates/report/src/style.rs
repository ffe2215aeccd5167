//! The colours and styles of all pages and pictures, which follow the reader's light or dark preference.

/// The colours, as variables.
pub const PALETTE: &str = include_str!("../assets/palette.css");
/// Classes `c0` to `c5`, which set the variable `--c` to the colour of a cluster.
pub const CLUSTERS: &str = ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}";
/// The styles of a page, without colours.
pub const PAGE: &str = include_str!("../assets/page.css");
