//! The commands in documents that run in another form, elsewhere, or not at all.

/// How to run a command to which an exception applies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instead {
    /// Run this instead, for example with fewer seeds, a free port or a smaller search.
    Run(&'static str),
    /// Run this first, then the command as printed.
    After(&'static str),
    /// Run this instead if the user is root; otherwise, skip the command.
    AsRoot(&'static str),
    /// Run this on a Kubernetes cluster, with the printed command in place of [`PRINTED`]; skip the command if no cluster
    /// is selected.
    OnCluster(&'static str),
    /// Run it as printed, and expect exit status 3, as the document says.
    Unknown,
    /// Skip it: the given step of `.ci/run`, or the given test, runs it.
    In(&'static str),
}
use Instead::{After, AsRoot, In, OnCluster, Run, Unknown};

const DEFECTS: Instead = In("the test `defects` of `faultline-fuzz`, which needs no build of its own");
/// The step of `.ci/run` that builds the images, creates a cluster and runs the scenarios.
const KUBERNETES: Instead = In("the step `kubernetes`");
const CAMPAIGN: Instead = In("the scenario `campaign`, with fewer runs");
const PLACES: Instead = In("the test `federation` of `faultline-node`, with free ports");
const VIEW: Instead = In("the test `view` of `faultline-cli`, which ends the program");
/// Represents the printed command in [`OnCluster`].
pub(super) const PRINTED: &str = "PRINTED";
/// Environment variable with the path of the cluster's kubeconfig.
pub(super) const KUBECONFIG: &str = "FAULTLINE_E2E_KUBECONFIG";

/// Runs a command while a federation of this name runs that has just been created.
const AGAIN: &str = "kubectl delete federation quickstart --ignore-not-found; \
     kubectl apply -f manifests/samples/quickstart.yaml && \
     kubectl wait federation/quickstart --for=condition=Running --timeout=2m && PRINTED";
const OTHER: &str = "sed 's/name: quickstart/name: my/' manifests/samples/quickstart.yaml > my.yaml; PRINTED";
/// Most clusters of developers cannot pull the printed image.
const RECORD: Instead = In("the scenario `record_kept`, with the project's own image");

/// The document, the beginning of the command, and how it runs instead. The longest match applies.
pub(super) const EXCEPTIONS: &[(&str, &str, Instead)] = &[
    ("README.md", "cargo run -- run", In("the step `quick start`")),
    ("README.md", "cargo test --workspace", In("the step `tests`")),
    (
        "README.md",
        "faultline run my.yaml --backend simulate --repeat 1000 -q",
        Run("faultline run my.yaml --backend simulate --repeat 50 -q"),
    ),
    ("README.md", "faultline run my.yaml --backend kubernetes", In("docs/kubernetes.md")),
    ("README.md", "faultline run my.yaml --view", VIEW),
    ("README.md", "faultline run redis.yaml --links tc", In("the step `systems`")),
    ("README.md", "faultline view faultline-runs", VIEW),
    ("docs/view.md", "faultline run my.yaml --view", VIEW),
    ("docs/view.md", "faultline view faultline-runs/quickstart-7", VIEW),
    ("docs/view.md", "faultline view faultline-runs", VIEW),
    ("docs/view.md", "kubectl faultline view", In("the tests of `faultline-kubectl`")),
    (
        "docs/view.md",
        "faultline run my.yaml --backend kubernetes --view",
        In("the tests of `faultline-kubectl`"),
    ),
    (
        "README.md",
        "faultline check --events log.jsonl",
        After("cp $REPOSITORY/crates/session/tests/sessions/logs/torchft.jsonl log.jsonl"),
    ),
    ("README.md", "faultline reproduce hc3i", Run("faultline reproduce hc3i --seeds 2")),
    (
        "README.md",
        "faultline reproduce hc3i --with-processes",
        Run("faultline reproduce hc3i --quick --with-processes --out with-processes"),
    ),
    ("README.md", "faultline reproduce hydee", Run("faultline reproduce hydee --quick")),
    ("README.md", "faultline reproduce cck", Run("faultline reproduce cck --quick --seeds 1")),
    ("README.md", "faultline reproduce tic", Run("faultline reproduce tic --quick --seeds 1")),
    ("docs/tic-sel.md", "faultline reproduce tic", Run("faultline reproduce tic --quick --seeds 1")),
    ("README.md", "faultline run my.yaml --links tc", AsRoot("faultline run my.yaml --links tc")),
    (
        "docs/clustering.md",
        "faultline cluster assemble.edges",
        After("printf 'a b 100\\nc d 100\\n' | tee assemble.edges > solve.edges"),
    ),
    (
        "docs/clustering.md",
        "faultline cluster DIR",
        After("faultline samples nas > nas.yaml; faultline run nas.yaml --backend simulate"),
    ),
    ("docs/protocols.md", "cp -r faultline/examples", After("ln -sfn $REPOSITORY faultline")),
    (
        "docs/protocols.md",
        "cargo test --manifest-path my-protocol",
        // The step `examples` runs the tests of the same crate.
        Run("printf '[workspace]\\n' >> my-protocol/Cargo.toml; \
             cargo metadata --no-deps --format-version 1 --manifest-path my-protocol/Cargo.toml"),
    ),
    (
        "docs/programs.md",
        "faultline run again.yaml --backend simulate",
        After("cp $REPOSITORY/examples/python/again.* ."),
    ),
    (
        "docs/programs.md",
        "faultline fuzz --program again.yaml --runs 100 --set acceptsStale=true",
        // It finds the violation.
        Run("faultline fuzz --program again.yaml --runs 100 --set acceptsStale=true; test $? -eq 1"),
    ),
    (
        "docs/systems.md",
        "faultline run pages.yaml",
        // On a busy machine, the probes may find less than the file expects.
        Run("faultline run pages.yaml; test $? -ne 2"),
    ),
    (
        "docs/tutorial/6-your-own-protocol.md",
        "faultline run mine.yaml --backend simulate --out crashed",
        Run("faultline run mine.yaml --backend simulate --out crashed; test $? -eq 1"),
    ),
    (
        "docs/tutorial/6-your-own-protocol.md",
        "faultline fuzz --program mine.yaml",
        Run("faultline fuzz --program mine.yaml --runs 200 --out found; test $? -eq 1"),
    ),
    (
        "docs/tutorial/6-your-own-protocol.md",
        "faultline run found/federation.yaml",
        Run("faultline run found/federation.yaml --backend simulate --record --out recorded; test $? -eq 1"),
    ),
    (
        "docs/tutorial/6-your-own-protocol.md",
        "faultline replay recorded --node a-2",
        // A later version of the search may find another federation.
        Run("faultline replay recorded --node a-0 --run-programs --lines"),
    ),
    (
        "docs/tutorial/6-your-own-protocol.md",
        "faultline fuzz --program again.yaml",
        After("cp $REPOSITORY/examples/python/again.* ."),
    ),
    (
        "README.md",
        "faultline run examples/python/again.yaml",
        After("mkdir -p examples; cp -r $REPOSITORY/examples/python examples"),
    ),
    (
        "docs/failures.md",
        "faultline traces fault_trace.json",
        After("cp $REPOSITORY/crates/failures/tests/data/tiny.json fault_trace.json"),
    ),
    (
        "docs/failures.md",
        "faultline traces lanl.csv",
        After("cp $REPOSITORY/crates/failures/tests/data/lanl-systems.csv lanl.csv"),
    ),
    (
        "docs/failures.md",
        "faultline traces event_trace.tab",
        After("cp $REPOSITORY/crates/failures/tests/data/events.tsv event_trace.tab"),
    ),
    (
        "docs/failures.md",
        "faultline traces ras.csv",
        After("cp $REPOSITORY/crates/failures/tests/data/plain.csv ras.csv"),
    ),
    ("docs/fuzzing.md", "faultline fuzz --for 10m --jobs 2", Run("faultline fuzz --for 5s --jobs 2")),
    (
        "docs/fuzzing.md",
        "faultline fuzz --file found/federation.yaml",
        After("mkdir found; faultline samples two-way > found/federation.yaml"),
    ),
    ("docs/fuzzing.md", "cargo run --", DEFECTS),
    ("docs/cck.md", "cargo run --", DEFECTS),
    ("docs/tic-sel.md", "cargo run --", DEFECTS),
    (
        "docs/explore.md",
        "faultline explore --protocol hydee",
        Run("faultline explore --protocol hydee --clusters 2 --nodes 1 --overtakings 0"),
    ),
    ("docs/tutorial/2-break-it.md", "faultline run broken.yaml", Unknown),
    ("docs/tutorial/7-write-a-protocol.md", "cargo test", In("the step `tests`")),
    ("docs/tutorial/8-kubernetes.md", "kind create cluster", KUBERNETES),
    ("docs/tutorial/8-kubernetes.md", "kubectl faultline", OnCluster("PRINTED")),
    (
        "docs/tutorial/8-kubernetes.md",
        "faultline run quickstart.yaml --backend kubernetes",
        OnCluster("PRINTED"),
    ),
    ("docs/tutorial/8-kubernetes.md", "faultline report pods", OnCluster("PRINTED")),
    ("docs/tutorial/8-kubernetes.md", "kubectl", OnCluster("PRINTED")),
    ("docs/tutorial/8-kubernetes.md", "sleep 10", OnCluster("PRINTED")),
    ("docs/tutorial/8-kubernetes.md", "faultline explain fetched", OnCluster("PRINTED")),
    ("docs/places.md", "head -c 32", PLACES),
    ("docs/places.md", "faultline-node", PLACES),
    ("docs/places.md", "curl -X PUT", PLACES),
    ("docs/campaigns.md", "faultline sweep", CAMPAIGN),
    ("docs/campaigns.md", "faultline compare", CAMPAIGN),
    ("docs/campaigns.md", "faultline fuzz", CAMPAIGN),
    ("docs/campaigns.md", "kubectl faultline campaign list", OnCluster("PRINTED")),
    ("docs/campaigns.md", "kubectl faultline campaign", CAMPAIGN),
    ("docs/campaigns.md", "static=", KUBERNETES),
    ("docs/campaigns.md", "RUSTFLAGS=", KUBERNETES),
    ("docs/campaigns.md", "built=", KUBERNETES),
    ("docs/campaigns.md", "tar -c", KUBERNETES),
    ("docs/campaigns.md", "kind load", KUBERNETES),
    ("docs/kubernetes.md", "static=", KUBERNETES),
    ("docs/kubernetes.md", "RUSTFLAGS=", KUBERNETES),
    ("docs/kubernetes.md", "built=", KUBERNETES),
    ("docs/kubernetes.md", "tar -c", KUBERNETES),
    (
        "docs/kubernetes.md",
        "cargo install --locked",
        In("the test `plugin` of `faultline-cli`, on the built program"),
    ),
    (
        "docs/kubernetes.md",
        "kubectl apply --server-side",
        OnCluster("ln -sfn $REPOSITORY/manifests manifests; PRINTED --dry-run=server"),
    ),
    ("docs/kubernetes.md", "helm", In("the scenario `chart_upgraded`")),
    (
        "docs/kubernetes.md",
        "kubectl faultline doctor --nodes",
        OnCluster("kubectl faultline doctor --nodes 6"),
    ),
    ("docs/kubernetes.md", "kubectl faultline doctor --tc", In("the scenario `doctor`")),
    // The cluster may have other users, and is needed again.
    (
        "docs/kubernetes.md",
        "kubectl delete federations",
        OnCluster("kubectl delete federations --all --all-namespaces --dry-run=server"),
    ),
    (
        "docs/kubernetes.md",
        "kubectl delete -f manifests/install.yaml",
        OnCluster("kubectl delete -f manifests/install.yaml --dry-run=server"),
    ),
    (
        "docs/kubernetes.md",
        "kubectl delete crd",
        OnCluster("kubectl delete crd federations.faultline.dev --dry-run=server"),
    ),
    ("docs/kubernetes.md", "kubectl delete clusterrole", OnCluster("PRINTED --dry-run=server")),
    ("docs/kubernetes.md", "kubectl", OnCluster("PRINTED")),
    ("docs/kubernetes.md", "kubectl get federation quickstart -o jsonpath", OnCluster(AGAIN)),
    (
        "docs/kubernetes.md",
        "kubectl patch --local",
        OnCluster("kubectl delete federation quickstart; PRINTED"),
    ),
    (
        "docs/kubernetes.md",
        "kubectl faultline fetch",
        OnCluster("kubectl wait federation/quickstart --for=condition=Completed --timeout=5m && PRINTED"),
    ),
    ("docs/kubernetes.md", "kubectl faultline run", OnCluster(OTHER)),
    ("docs/kubernetes.md", "faultline run my.yaml --backend kubernetes", OnCluster(OTHER)),
    ("docs/kubernetes.md", "kubectl faultline logs federation/quickstart", OnCluster("PRINTED")),
    // The pods of the processes end with the run.
    ("docs/kubernetes.md", "kubectl faultline logs federation/quickstart paris-1", OnCluster(AGAIN)),
    ("docs/kubernetes.md", "kubectl apply -f - <<'END'\napiVersion: v1\nkind: Pod", RECORD),
    ("docs/kubernetes.md", "kubectl wait pod/reader", RECORD),
    ("docs/kubernetes.md", "mkdir records", RECORD),
    ("docs/kubernetes.md", "kubectl delete pod reader", RECORD),
    ("docs/kubernetes.md", "faultline check records/UID", RECORD),
    (
        "docs/kubernetes.md",
        "kubectl label --overwrite namespace NAMESPACE",
        OnCluster(
            "kubectl label --overwrite --dry-run=server namespace default \
             pod-security.kubernetes.io/enforce=privileged",
        ),
    ),
    ("docs/kubernetes.md", "kubectl port-forward", In("the next command")),
    (
        "docs/kubernetes.md",
        "curl -s http://localhost:7301/metrics",
        OnCluster(
            "kubectl port-forward pod/quickstart-supervisor-0 7301 & sleep 3; PRINTED --fail; status=$?; \
             kill %1; kubectl delete federation quickstart; exit $status",
        ),
    ),
    ("docs/kubernetes.md", "export FAULTLINE_E2E_KUBECONFIG", KUBERNETES),
    ("docs/kubernetes.md", "cargo build -p faultline-cli -p faultline-kubectl", KUBERNETES),
    ("docs/kubernetes.md", "cargo test -p faultline-e2e", KUBERNETES),
    ("docs/kubernetes.md", "FAULTLINE_E2E_JOBS=3", KUBERNETES),
    ("docs/kubernetes.md", "kind create cluster", KUBERNETES),
    ("docs/kubernetes.md", "cargo build --release -p faultline-operator", In("the step `images`")),
    // Each measurement takes up to an hour on an otherwise idle machine.
    (
        "docs/kubernetes.md",
        "cargo run -p faultline-e2e --bin figures",
        // With `--workspace`, the dependencies have the features with which the tests built them.
        Run(
            "cd $REPOSITORY && cargo build --quiet --workspace --bin figures && for it in startup faults silence scale; \
             do ${CARGO_TARGET_DIR:-target}/debug/figures $it --help || exit; done",
        ),
    ),
    ("docs/kubernetes.md", "faultline validate manifests", After("ln -sfn $REPOSITORY/manifests manifests")),
    (
        "docs/kubernetes.md",
        "faultline validate new.yaml --running old.yaml",
        After("cp manifests/samples/quickstart.yaml old.yaml; sed s/5ms/40ms/ old.yaml > new.yaml"),
    ),
];
