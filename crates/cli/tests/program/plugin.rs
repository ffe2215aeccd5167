//! Tests how `faultline` calls `kubectl-faultline`, a separate program: it receives all options, and errors say how to
//! install it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;

use crate::common::{TestDirectory, signal, small, wait_until};
use assert_cmd::Command;
use predicates::prelude::*;

/// A program that prints its arguments, one per line, and exits with status 3.
const STAND_IN: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 3\n";

/// Returns a command that runs `faultline` from the test directory, with no programs on the PATH.
fn alone(place: &TestDirectory) -> Command {
    let program = place.path("faultline");
    if !program.exists() {
        let built = Path::new(env!("CARGO_BIN_EXE_faultline"));
        // Avoid copying the large program unless the directory is on another device.
        fs::hard_link(built, &program).unwrap_or_else(|_| copy(built, &program));
    }
    let mut command = Command::new(program);
    command.current_dir(place.dir()).env("PATH", "/nonexistent").env("NO_COLOR", "1");
    command
}

/// Copies a file that will be executed. Another process makes the copy: if this process wrote the file, a
/// child that another test starts at that moment would have it open for writing, and executing it would fail.
fn copy(from: &Path, to: &Path) {
    assert!(process::Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Returns an error without its line breaks.
fn unbroken(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let words: Vec<&str> = said.split_whitespace().filter(|it| !["│", "|"].contains(it)).collect();
    words.join(" ")
}

fn install(dir: &Path) {
    let text = dir.join("stand-in");
    fs::write(&text, STAND_IN).unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    copy(&text, &dir.join("kubectl-faultline"));
}

#[test]
fn without_the_plugin_each_command_explains_how_to_install_it() {
    let place = TestDirectory::new();
    for arguments in [
        &["run", "--backend", "kubernetes"][..],
        &["fetch", "federation/quickstart"],
        &["doctor", "--backend", "kubernetes"],
    ] {
        let output = alone(&place).args(arguments).assert().code(2).stdout("").get_output().clone();
        let said = unbroken(&output.stderr);
        assert!(said.contains("`kubectl-faultline`, which is not installed"), "{said}");
        assert!(said.contains("`cargo install --locked --path crates/kubectl`"), "{said}");
        assert!(said.contains("copy it from a release archive (`cargo xtask dist`)"), "{said}");
    }
}

#[test]
fn the_plugin_receives_every_option_and_its_status_is_returned() {
    let place = TestDirectory::new();
    install(place.dir());
    for (arguments, passed) in [
        (
            &[
                "run",
                "my.yaml",
                "--backend",
                "kubernetes",
                "--repeat",
                "2",
                "--keep",
                "--timeout",
                "10m",
                "-vv",
            ][..],
            "run --repeat=2 --timeout=10m --format=text --verbose --verbose -- my.yaml",
        ),
        (&["run", "--backend=kubernetes", "--view"], "run --repeat=1 --view --format=text"),
        (
            &["run", "--backend=kubernetes", "--view=127.0.0.1:8000"],
            "run --repeat=1 --view=127.0.0.1:8000 --format=text",
        ),
        (
            &[
                "run",
                "--backend=kubernetes",
                "--seed=7",
                "--out=-dir",
                "-q",
                "-n",
                "ns",
                "--format",
                "json",
                "--memory",
                "512MiB",
            ],
            "run --seed=7 --repeat=1 --out=-dir --memory=512MiB --format=json --quiet --namespace=ns",
        ),
        (
            &["fetch", "federation/quickstart", "--out", "here", "--context", "kind"],
            "fetch --out=here --context=kind -- federation/quickstart",
        ),
        (
            &["doctor", "--backend", "kubernetes", "--tc", "--nodes", "60", "--image", "registry/node:1"],
            "doctor --nodes=60 --format=text --tc --image=registry/node:1",
        ),
    ] {
        let passed = passed.replace(' ', "\n") + "\n";
        alone(&place).args(arguments).assert().code(3).stdout(passed).stderr("");
    }
}

#[test]
fn the_program_on_the_path_is_called_if_none_is_next_to_this_one() {
    let place = TestDirectory::new();
    let elsewhere = place.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    install(&elsewhere);
    let path = format!("{}:/bin:/usr/bin", elsewhere.display());
    alone(&place)
        .env("PATH", path)
        .args(["fetch", "quickstart"])
        .assert()
        .code(3)
        .stdout("fetch\n--\nquickstart\n");
}

#[test]
fn options_that_pods_do_not_support_are_refused_without_the_plugin() {
    let place = TestDirectory::new();
    for (option, said) in [
        (&["--record"][..], "`--record` is not supported on Kubernetes"),
        (&["--metrics", "127.0.0.1:0"], "`--metrics` works only with `--backend local`"),
        (&["--links", "tc"], "`--links tc` works only with real processes"),
    ] {
        alone(&place)
            .args(["run", "--backend", "kubernetes"])
            .args(option)
            .assert()
            .code(2)
            .stderr(predicate::str::contains(said));
    }
}

/// Both programs know of the interrupt.
#[test]
fn one_signal_to_a_campaign_prints_one_message() {
    const CAMPAIGN: &str = "#!/bin/sh
trap 'echo interrupted: the campaign continues >&2; exit 3' INT
: > started
while :; do /bin/sleep 0.05; done
";
    let place = TestDirectory::new();
    fs::write(place.path("stand-in"), CAMPAIGN).unwrap();
    fs::set_permissions(place.path("stand-in"), fs::Permissions::from_mode(0o755)).unwrap();
    copy(&place.path("stand-in"), &place.path("kubectl-faultline"));
    place.write("my.yaml", small(""));
    drop(alone(&place));
    let sweep = [
        "sweep",
        "my.yaml",
        "--set",
        "protocol.hc3i.checkpointEvery=50ms,100ms",
        "--seeds",
        "2",
        "--backend",
        "kubernetes",
    ];
    let child = process::Command::new(place.path("faultline"))
        .current_dir(place.dir())
        .args(sweep)
        .env("PATH", "/nonexistent")
        .env("NO_COLOR", "1")
        .stdout(process::Stdio::piped())
        .stderr(process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(|| place.path("started").exists(), || "the campaign does not start".to_owned());
    signal(&child, "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "interrupted: the campaign continues\n");
}
