//! `faultline model`: published models of checkpointing beside measurements.

use faultline_console::repetition::consecutive;
use faultline_experiments::model::{self, ModelError, Options, page, text};
use miette::miette;

use crate::arguments::{Format, ModelArguments};
use crate::command_error::{CommandError, Exit};
use crate::paper::jobs;
use crate::progress::Progress;
use crate::{files, interrupt, output};

/// Executes `faultline model`.
pub(crate) fn model(arguments: &ModelArguments) -> Result<Exit, CommandError> {
    let source = files::read(&arguments.file)?;
    let federation = source.parse()?;
    files::refuse_pause(&source.label, &federation)?;
    let seed = federation.spec.seed();
    let check = arguments.check.then_some(arguments.seeds);
    consecutive(seed, check.unwrap_or(1))?;
    let options = Options { seed, check, jobs: jobs(arguments.jobs) };
    let interrupted = interrupt::flag();
    let mut progress = Progress::counting(0, 0).unless_quiet(arguments.quiet);
    let mut tell = |done, total| progress.step("", (done, total), false);
    let models = model::model(&federation, &options, &interrupted, &mut tell);
    drop(progress);
    let models = models.map_err(|error| match error {
        ModelError::Interrupted => CommandError::machine_with(&error, error.help()),
        ModelError::Setup(error) => files::unfit(error),
        _ => CommandError::input(miette!(help = error.help().to_owned(), "{}: {error}", source.label)),
    })?;
    let json = text::json(&models);
    if let Some(out) = &arguments.out {
        output::directory(out)?;
        output::write(out, "index.html", &page::render(&models))?;
        output::write(out, "model.json", &json)?;
    }
    output::print(&match (arguments.format, arguments.advise) {
        (Format::Json, _) => json,
        (Format::Text, true) => {
            output::note(text::advice(&models));
            format!("{}\n", text::setting(&models))
        }
        (Format::Text, false) => {
            let page = arguments.out.as_ref().map(|it| format!("\n{}\n", it.join("index.html").display()));
            output::filled(format!("{}{}", text::text(&models), page.unwrap_or_default()))
        }
    })?;
    Ok(Exit::of_runs(models.failed, true))
}
