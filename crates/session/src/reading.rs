//! Reading a record back.

use faultline_catalog::{Rederived, rederive};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Bundle, BundleError, Manifest};

use crate::events;
use crate::memory::{check_program, memory_bound, most_facts};
use crate::recording::{UnjudgedRecording, contradicted};

impl UnjudgedRecording {
    /// Reads the record in a bundle. For a run that was cut short, the end is derived from the facts. Entries of the
    /// manifest that do not follow from the record's federation file are replaced with derived ones, and reported as
    /// flaws of the trace.
    ///
    /// Reading can take as long as the application's own computation, excluding modelled time.
    ///
    /// # Errors
    ///
    /// Fails if the bundle cannot be read, or if judging it would exceed this program's [memory
    /// limit](crate::bound_memory).
    pub fn read(bundle: &Bundle) -> Result<UnjudgedRecording, BundleError> {
        let recorded = bundle.read_manifest()?;
        let mut trace = bundle.read_trace_of(most_facts())?;
        if recorded.backend == BackendKind::Events || recorded.events.is_some() {
            events::compare(bundle, &recorded, &mut trace);
            let mut manifest = recorded;
            manifest.fill_in(&trace);
            return Ok(UnjudgedRecording { manifest, trace });
        }
        let Rederived { mut manifest, doubts } =
            rederive(recorded, &trace, |it| check_program(it, memory_bound()));
        // Contradictions come first, because they explain more than the flaws of single streams.
        trace.flaws.splice(0..0, contradicted(doubts));
        manifest.fill_in(&trace);
        Ok(UnjudgedRecording { manifest, trace })
    }

    /// Reads the facts of a run that has just ended, up to `most` of them. If there are more, the result has
    /// no facts and counts as out of memory, so its verdict is unknown. The record itself remains unchanged, so a
    /// program with more memory can still judge it.
    ///
    /// # Errors
    ///
    /// Fails if the bundle cannot be read.
    pub fn read_back(
        bundle: &Bundle,
        manifest: Manifest,
        most: u64,
    ) -> Result<UnjudgedRecording, BundleError> {
        match bundle.read_trace_of(most) {
            Ok(trace) => Ok(UnjudgedRecording { manifest, trace }),
            Err(BundleError::TooManyFacts { most, .. }) => Ok(UnjudgedRecording::too_large(manifest, most)),
            Err(error) => Err(error),
        }
    }
}
