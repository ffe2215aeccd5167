//! The program as `kubectl` calls it, without a cluster.

use assert_cmd::Command;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-faultline"));
    command.env("KUBECONFIG", "/nonexistent/kubeconfig").env("NO_COLOR", "1");
    command
}

fn refused(arguments: &[&str]) -> String {
    let output = program().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn without_a_cluster_each_command_explains_how_to_name_one() {
    for arguments in [&["run"][..], &["fetch", "quickstart"], &["doctor"], &["logs", "quickstart"]] {
        let said = refused(arguments);
        assert!(said.contains("cannot find a Kubernetes cluster") && said.contains("KUBECONFIG"), "{said}");
    }
}

#[test]
fn an_api_server_that_does_not_respond_is_named_with_the_cause() {
    // Nothing listens on this port once the listener is gone.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1
kind: Config
clusters: [{{ name: a, cluster: {{ server: 'http://{address}' }} }}]
users: [{{ name: a, user: {{ token: t }} }}]
contexts: [{{ name: a, context: {{ cluster: a, user: a }} }}]
current-context: a
"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    for arguments in [&["run"][..], &["campaign", "list"], &["doctor"]] {
        let output = program().env("KUBECONFIG", &kubeconfig).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let said = said.split_whitespace().filter(|it| *it != "│").collect::<Vec<_>>().join(" ");
        let cause = format!("cannot reach the API server http://{address}/: Connection refused");
        assert!(said.contains(&cause) && !said.contains("ERROR"), "{said}");
    }
}

#[test]
fn an_invalid_file_is_rejected_before_connecting_to_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.yaml");
    std::fs::write(&file, "kind: Federation\n").unwrap();
    let said = refused(&["run", file.to_str().unwrap()]);
    assert!(said.contains("wrong.yaml") && !said.contains("a Kubernetes cluster"), "{said}");
}

/// If the program tried to create the federation first, it would report that it cannot connect.
#[test]
fn an_unwritable_directory_is_rejected_before_the_federation_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("kubeconfig");
    let text = "{ apiVersion: v1, kind: Config, current-context: a, \
                clusters: [{ name: a, cluster: { server: 'https://127.0.0.1:1' } }], \
                users: [{ name: a, user: {} }], contexts: [{ name: a, context: { cluster: a, user: a } }] }\n";
    std::fs::write(&config, text).unwrap();
    let out = config.join("out");
    let arguments = ["run", "--out", out.to_str().unwrap()];
    let output = program().args(arguments).env("KUBECONFIG", &config).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot record a run in") && said.contains("a writable directory"), "{said}");
}

#[test]
fn a_memory_limit_that_no_run_can_stay_within_is_rejected_before_connecting_to_a_cluster() {
    for limit in ["1KiB", "1024GiB"] {
        let said = refused(&["run", "--memory", limit]);
        assert!(said.contains("`--memory` must") && !said.contains("a Kubernetes cluster"), "{said}");
    }
    let said = refused(&["run", "--memory", "64MiB"]);
    assert!(said.contains("cannot find a Kubernetes cluster"), "{said}");
}

#[test]
fn a_federation_that_stays_cannot_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stays.yaml");
    let text = std::fs::read_to_string("../../manifests/samples/ping-pong.yaml").unwrap();
    std::fs::write(&file, format!("{text}\n  kubernetes: {{ ttlSecondsAfterFinished: 600 }}\n")).unwrap();
    let said = refused(&["run", file.to_str().unwrap(), "--repeat", "2"]);
    assert!(
        said.contains("`spec.kubernetes.ttlSecondsAfterFinished`") && said.contains("--repeat 1"),
        "{said}"
    );
    let said = refused(&["run", file.to_str().unwrap()]);
    assert!(said.contains("cannot find a Kubernetes cluster"), "{said}");
}

#[test]
fn completions_can_be_generated() {
    let output = program().args(["completions", "bash"]).output().unwrap();
    assert!(output.status.success());
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(script.contains("kubectl-faultline") && script.contains("--previous"), "{script}");
}
