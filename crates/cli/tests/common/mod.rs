//! The command, and federations that are over soon.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

/// `faultline` in a directory of its own.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    /// The command, to be run there.
    pub(crate) fn faultline<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faultline"));
        command.current_dir(self.dir.path()).args(arguments).env("NO_COLOR", "1");
        command
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Two clusters that compute for 1.2 s, with `extra` lines in the spec.
pub(crate) fn small(extra: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: small
spec:
  seed: 3
  clusters: [{{ name: lyon, nodes: 2 }}, {{ name: nancy, nodes: 2 }}]
  links:
    between: {{ latency: 3ms, bandwidth: 100Mbit }}
  protocol:
    hc3i: {{ checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster }}
  application:
    heat: {{ steps: 60, stepTime: 20ms, feedbackEvery: 20, state: 64KiB }}
  failures: {{ detectAfter: 2s, restartAfter: 50ms }}
{extra}"
    )
}

/// What happens to [`small`].
pub(crate) const CRASH: &str = "  faults: [{ at: 600ms, crash: { cluster: lyon, node: 1 } }]\n";
