//! One recorded and judged run on this machine. Used by `run`, evaluations and comparisons.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use faultline_api::{Federation, Names};
use faultline_checker::Strictness;
use faultline_console::place::{ACTION, create_record};
use faultline_session::{Session, SessionError, Simulator};
use faultline_shaper::Kernel;

use crate::command_error::CommandError;
use crate::files;
use crate::live::View;
use crate::local::Processes;
use crate::machine::{self, Size};
use crate::output;
use crate::recording::LocatedRecording;
use crate::simulate::Watched;
use crate::view::RunPage;

/// Runs a federation on this machine.
pub(crate) struct Runner<'a> {
    pub(crate) federation: &'a Federation,
    /// The text of the federation's file.
    pub(crate) text: &'a str,
    pub(crate) here: &'a LocalBackend,
    /// Whether the inputs of processes are recorded too.
    pub(crate) records_inputs: bool,
    pub(crate) strictness: Strictness,
    pub(crate) view: View<'a>,
    /// The page that shows the run, if any.
    pub(crate) page: Option<Arc<RunPage>>,
    pub(crate) interrupted: &'a Arc<AtomicBool>,
}

/// The backends on this machine.
pub(crate) enum LocalBackend {
    /// Virtual time.
    Simulator,
    /// Real processes.
    Processes {
        /// The traffic control for links, if any.
        kernel: Option<Kernel>,
        /// The listener for metrics, if any.
        metrics: Option<Arc<TcpListener>>,
    },
}

impl Runner<'_> {
    /// Runs and judges the federation once, and writes the record to `dir`.
    pub(crate) fn once(&self, seed: u64, dir: &Path) -> Result<LocatedRecording, CommandError> {
        let Runner { federation, text, here, records_inputs, strictness, view, page, interrupted } = self;
        if let LocalBackend::Processes { .. } = here {
            let names = Names::of(&federation.spec);
            let processes = names.ranks() as usize + names.extra().len();
            machine::require(Size::of_run(processes, &federation.spec))?;
        }
        let bundle = create_record(ACTION, dir)?;
        let session = Session::new(federation).seed(seed).of_text(text, SystemTime::now());
        let session = session.with_inputs(*records_inputs);
        let run = match here {
            LocalBackend::Simulator => {
                let mut watched = Watched::new(*view, page.clone(), interrupted);
                let run = session.record_simulated(&bundle, &mut Simulator::new(&mut watched));
                watched.finish();
                run.map_err(|error| command_error(error, CommandError::machine))
            }
            LocalBackend::Processes { kernel, metrics } => {
                let (kernel, metrics, page) = (*kernel, metrics.clone(), page.clone());
                let mut processes =
                    Processes { kernel, metrics, page, view: *view, interrupted, notes: Vec::new() };
                let run = session.record(&bundle, &mut processes);
                processes.notes.iter().for_each(output::note);
                run.map_err(|error| command_error(error, |it| it))
            }
        };
        Ok(LocatedRecording::new(dir, run?, *strictness))
    }
}

fn command_error<E>(error: SessionError<E>, of_backend: impl FnOnce(E) -> CommandError) -> CommandError {
    match error {
        SessionError::Setup(error) => files::unfit(error),
        SessionError::Record(error) => CommandError::of_machine(&error),
        SessionError::Backend(error) => of_backend(error),
    }
}
