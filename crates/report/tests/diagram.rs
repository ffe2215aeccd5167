//! The diagram of a made-up run.

mod common;

use faultline_report::diagram::{Limits, svg};
use faultline_report::{Cast, Diagram, History};

#[test]
fn picture() {
    let (manifest, trace) = common::run(3);
    let cast = Cast::new(&manifest);
    let history = History::new(&trace, &cast);
    let diagram = Diagram::new(&history, &cast, Limits::default());
    let svg = svg::render(&diagram, svg::Options::default());
    if let Ok(dir) = std::env::var("PICTURES") {
        std::fs::write(format!("{dir}/diagram.svg"), &svg).unwrap();
    }
    dbg!(&history.rollbacks);
}
