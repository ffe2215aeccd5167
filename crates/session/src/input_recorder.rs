//! Records the inputs of simulated processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use faultline_core::process::{ActionOf, In};
use faultline_core::{Life, LifeStart, Process, ProcessId, Time};
use faultline_trace::inputs::{InputObserver, InputsWriter};
use faultline_trace::{Bundle, BundleError};

/// Records the inputs of a simulation's processes in its bundle.
pub(crate) struct InputRecorder {
    bundle: Bundle,
    writers: BTreeMap<(ProcessId, Life), InputsWriter<File>>,
    /// The first error. Nothing is recorded after it.
    error: Option<BundleError>,
}

impl InputRecorder {
    pub(crate) fn new(bundle: Bundle) -> InputRecorder {
        InputRecorder { bundle, writers: BTreeMap::new(), error: None }
    }

    /// Writes the remaining buffers. Fails if anything could not be written.
    pub(crate) fn finish(mut self) -> Result<(), BundleError> {
        let lives: Vec<_> = self.writers.keys().copied().collect();
        for (process, life) in lives {
            self.with_writer(process, life, InputsWriter::flush);
        }
        self.error.map_or(Ok(()), Err)
    }

    fn with_writer(
        &mut self,
        process: ProcessId,
        life: Life,
        write: impl FnOnce(&mut InputsWriter<File>) -> io::Result<()>,
    ) {
        let Some(writer) = self.writers.get_mut(&(process, life)).filter(|_| self.error.is_none()) else {
            return;
        };
        if let Err(source) = write(writer) {
            let path = self.bundle.inputs_path(process, life);
            self.error = Some(BundleError::Write { path, source });
        }
    }
}

impl<P: Process> InputObserver<P> for InputRecorder {
    fn started(&mut self, at: Time, start: &LifeStart<P::Config>) {
        match self.bundle.inputs_writer(start.me, start.life) {
            Ok(writer) => drop(self.writers.insert((start.me, start.life), writer)),
            Err(error) => drop(self.error.get_or_insert(error)),
        }
        self.with_writer(start.me, start.life, |it| it.start::<P>(at, start));
    }

    fn given(&mut self, process: ProcessId, life: Life, at: Time, event: &In<P>) {
        self.with_writer(process, life, |it| it.event::<P>(at, event));
    }

    fn did(&mut self, process: ProcessId, life: Life, at: Time, actions: &[ActionOf<P>]) {
        self.with_writer(process, life, |it| it.actions::<P>(at, actions));
    }
}
