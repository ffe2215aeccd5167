//! The operator as a program.

use std::process::Command;

/// Returns the log of an operator that finds no cluster.
fn log(environment: &[(&str, &str)]) -> String {
    let mut operator = Command::new(env!("CARGO_BIN_EXE_faultline-operator"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "KUBERNETES_SERVICE_HOST", "FAULTLINE_LOG"] {
        operator.env_remove(name);
    }
    operator.env("KUBECONFIG", "/dev/null/none").envs(environment.iter().copied());
    let output = operator.output().expect("the operator starts");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("a log is text")
}

#[test]
fn the_log_has_colours_only_where_they_are_wanted() {
    let (plain, forced) = (log(&[]), ("CLICOLOR_FORCE", "1"));
    assert!(plain.contains("the operator failed") && !plain.contains('\u{1b}'), "{plain}");
    assert!(log(&[forced]).contains("\u{1b}["));
    assert!(!log(&[forced, ("NO_COLOR", "1")]).contains('\u{1b}'));
}
