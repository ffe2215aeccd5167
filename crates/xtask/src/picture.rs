//! Draws the README's space-time diagram from a real run of the quick start.

use std::error::Error;
use std::fs;
use std::process::Command;

use crate::Repository;

const PICTURE: &str = "docs/quickstart.svg";

pub(crate) fn draw(repository: &Repository) -> Result<(), Box<dyn Error>> {
    let dir = repository.root.join("target/picture");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let (record, page) = (dir.join("record"), dir.join("report.html"));
    let faultline = |arguments: &mut Command| {
        let command = arguments.current_dir(&repository.root);
        match command.status()? {
            status if status.success() => Ok(()),
            status => Err(Box::<dyn Error>::from(format!("{command:?} ended with {status}"))),
        }
    };
    let cargo = || {
        let mut command = Command::new("cargo");
        command.args(["run", "--release", "--quiet", "--"]);
        command
    };
    faultline(cargo().arg("run").arg("--out").arg(&record))?;
    faultline(cargo().arg("report").arg(&record).arg("--to").arg(&page))?;
    fs::copy(page.with_extension("svg"), repository.root.join(PICTURE))?;
    println!("{PICTURE}");
    Ok(())
}
