//! Records the inputs of simulated processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use faultline_core::process::{ActionOf, In};
use faultline_core::{Birth, Life, Process, ProcessId, Time};
use faultline_trace::inputs::{InputsWriter, Recorder};
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

impl<P: Process> Recorder<P> for InputRecorder {
    fn born(&mut self, at: Time, birth: &Birth<P::Config>) {
        match self.bundle.inputs_writer(birth.me, birth.life) {
            Ok(writer) => drop(self.writers.insert((birth.me, birth.life), writer)),
            Err(error) => drop(self.error.get_or_insert(error)),
        }
        self.with_writer(birth.me, birth.life, |it| it.birth::<P>(at, birth));
    }

    fn given(&mut self, process: ProcessId, life: Life, at: Time, event: &In<P>) {
        self.with_writer(process, life, |it| it.event::<P>(at, event));
    }

    fn did(&mut self, process: ProcessId, life: Life, at: Time, actions: &[ActionOf<P>]) {
        self.with_writer(process, life, |it| it.actions::<P>(at, actions));
    }
}
