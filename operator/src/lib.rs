//! The operator: creates a federation's pods, tells their supervisor where they are, carries out requests that need
//! the API server, and reports the state in the resource.
//!
//! The operator is independent of the protocol and makes no decisions about the run: the supervisor makes them, in its
//! own pod. All state of the operator is in the API server or in the supervisor, so it can stop and restart at any
//! time.
//!
//! | module | content |
//! | --- | --- |
//! | [`controller`] | watched objects, and when a federation is reconciled |
//! | [`shares`] | how federations share the parallel reconciliations |
//! | [`reconcile`] | reconciling a federation: freezing it, and six steps |
//! | [`context`] | what all reconciliations share |
//! | [`cached_federation`] | federations as they are cached, readable or not |
//! | [`federation_cache`] | what is remembered about each federation |
//! | [`object_cache`] | the known pods and sets of each federation |
//! | `owned`, `pod_state`, `shortened` | objects that belong to a federation, the state of a pod, and texts of limited length |
//! | [`limits`] | how often the operator writes about a federation |
//! | [`pages`] | lists that are read page by page |
//! | [`client`] | the client of the API server |
//! | [`election`] | which of several operators is active |
//! | [`install`] | the objects that install the operator, including its permissions |
//! | [`metrics`] | metrics of the operator |

pub mod cached_federation;
pub mod client;
pub mod context;
pub mod controller;
pub mod election;
pub mod federation_cache;
pub mod install;
pub mod limits;
pub mod metrics;
pub mod object_cache;
mod owned;
pub mod pages;
mod pod_state;
pub mod reconcile;
pub mod settings;
pub mod shares;
mod shortened;

use faultline_client::{naming, supervisor};

pub use context::Context;
pub use settings::Settings;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Returns the Rust files in a directory.
    fn files(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).expect("the directory exists").flatten();
        let (directories, files): (Vec<_>, Vec<_>) = entries.map(|it| it.path()).partition(|it| it.is_dir());
        let files = files.into_iter().filter(|it| it.extension().is_some_and(|it| it == "rs"));
        files.chain(directories.iter().flat_map(|it| self::files(it))).collect()
    }

    /// The caches are below the steps of a reconciliation, and the controller is above them.
    #[test]
    fn modules_import_only_modules_below_them() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let above = |file: &Path| match file.strip_prefix(&source).expect("it is a source file") {
            it if it.starts_with("reconcile") => Some("crate::controller"),
            it if ["lib.rs", "main.rs", "controller.rs"].iter().any(|name| it == Path::new(name)) => None,
            _ => Some("crate::reconcile"),
        };
        let imports = |file: &Path| {
            let text = fs::read_to_string(file).expect("the file can be read");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            above(file).is_some_and(|above| code.contains(above))
        };
        let judged = files(&source);
        assert!(judged.iter().filter(|it| above(it).is_some()).count() > 20, "{judged:?}");
        let wrong: Vec<&PathBuf> = judged.iter().filter(|it| imports(it)).collect();
        assert_eq!(wrong, Vec::<&PathBuf>::new());
    }
}
