//! `faultline run`: runs a federation once, or several times with consecutive seeds.

use std::net::TcpListener;
use std::sync::Arc;

use faultline_api::quantity::Size;
use faultline_console::repetition::Repetition;
use faultline_shaper::{Kernel, ShapingSide};
use faultline_tc::namespace;
use faultline_trace::manifest::BackendKind;
use miette::miette;

use crate::arguments::{BackendName, LinksName, RunArguments};
use crate::command_error::{CommandError, Exit};
use crate::files::{self, Source};
use crate::live::View;
use crate::output::note;
use crate::recording::strictness;
use crate::runner::{LocalBackend, Runner};
use crate::view::RunPage;
use crate::{doctor, interrupt, plugin};

/// Makes the user root in a namespace of the program's own if the run needs that. Must be called before threads start.
pub(crate) fn enter_namespaces(arguments: &RunArguments) {
    let RunArguments { backend, links, .. } = arguments;
    if *backend == BackendName::Local && *links == LinksName::Tc && port(arguments).is_none() {
        // If this fails, the test of the kernel fails as well, and its error says why.
        drop(namespace::become_root());
    }
}

/// Returns the option that opens a port for other programs, if one does.
fn port(arguments: &RunArguments) -> Option<&'static str> {
    let options = [("--metrics", arguments.metrics.is_some()), ("--view", arguments.view.is_some())];
    options.into_iter().find(|it| it.1).map(|it| it.0)
}

/// Executes `faultline run`.
pub(crate) fn run(arguments: &RunArguments, memory: Option<Size>) -> Result<Exit, CommandError> {
    has_effect(arguments)?;
    if arguments.backend == BackendName::Kubernetes {
        return plugin::run(arguments, memory);
    }
    if arguments.fresh_programs {
        faultline_catalog::never_reuse();
    }
    let source = Source::of(arguments.file.as_deref())?;
    let federation = source.parse()?;
    files::refuse_pause(&source.label, &federation)?;
    let text = source.text();
    let first = arguments.seed.unwrap_or_else(|| federation.spec.seed());
    let is_real = arguments.backend == BackendName::Local;
    if is_real {
        let missing = faultline_launch::missing_commands(&federation.spec, first);
        let missing = missing.map_err(|it| CommandError::input(miette!(help = it.help, "{}", it.message)))?;
        if !missing.is_empty() {
            return Err(source.reject(missing));
        }
    }
    let page =
        arguments.view.map(|address| RunPage::open(address, &federation, first, is_real)).transpose()?;
    let page = page.map(Arc::new);
    let here = match arguments.backend {
        BackendName::Local => {
            LocalBackend::Processes { kernel: links(arguments)?, metrics: metrics(arguments)? }
        }
        BackendName::Simulate | BackendName::Kubernetes => LocalBackend::Simulator,
    };
    let interrupted = interrupt::flag();
    let view = View { federation: &federation, output: arguments.output, of_many: arguments.repeat > 1 };
    let runner = Runner {
        federation: &federation,
        text: &text,
        here: &here,
        records_inputs: arguments.record,
        strictness: strictness(arguments.strict),
        view,
        page: page.clone(),
        interrupted: &interrupted,
    };
    let repetition = Repetition {
        name: federation.metadata.name.as_deref().unwrap_or("federation"),
        federation: &federation,
        backend: match arguments.backend {
            BackendName::Simulate => BackendKind::Simulate,
            BackendName::Local => BackendKind::Local,
            BackendName::Kubernetes => BackendKind::Kubernetes,
        },
        repeat: arguments.repeat,
        keeps_all: arguments.keep || arguments.backend != BackendName::Simulate,
        out: arguments.out.as_deref(),
        junit: arguments.junit.as_deref(),
        output: arguments.output,
        interrupted: &interrupted,
    };
    let exit = repetition.perform(first, |seed, dir| {
        let recording = runner.once(seed, dir)?;
        if let Some(page) = &page {
            page.show(&recording);
        }
        Ok(recording)
    })?;
    if let Some(page) = page {
        page.serve(&interrupted);
    }
    Ok(exit)
}

/// Rejects options that the backend would ignore.
fn has_effect(arguments: &RunArguments) -> Result<(), CommandError> {
    let RunArguments { backend, links, metrics, timeout, cluster, record, strict, fresh_programs, .. } =
        arguments;
    let (local, pods) = (*backend == BackendName::Local, *backend == BackendName::Kubernetes);
    let ignored = [
        ("--metrics", metrics.is_some() && !local, "local"),
        ("--fresh-programs", *fresh_programs && *backend != BackendName::Simulate, "simulate"),
        ("--timeout", timeout.is_some() && !pods, "kubernetes"),
        ("--namespace", cluster.namespace.is_some() && !pods, "kubernetes"),
        ("--context", cluster.context.is_some() && !pods, "kubernetes"),
    ];
    if *links == LinksName::Tc && !local {
        return Err(CommandError::input(miette!(
            help = "omit `--links tc`, or add `--backend local`; for pods, set `kubernetes: { links: tc }` in the file",
            "`--links tc` works only with real processes on this machine"
        )));
    }
    if let Some(option) = port(arguments).filter(|_| *links == LinksName::Tc && !namespace::is_root()) {
        return Err(CommandError::input(miette!(
            help = "run as root, or omit one of them",
            "`--links tc` and `{option}` together need root: other users emulate links in a network of their own, which \
             no other program can reach"
        )));
    }
    if *record && pods {
        return Err(CommandError::input(miette!(
            help = "omit `--record`, or use another backend",
            "`--record` is not supported on Kubernetes"
        )));
    }
    if *strict && pods {
        return Err(CommandError::input(miette!(
            help = "omit `--strict`, and use `faultline check --strict` on the record",
            "`--strict` is not supported on Kubernetes"
        )));
    }
    match ignored.into_iter().find(|&(_, is_given, _)| is_given) {
        None => Ok(()),
        Some((option, _, backend)) => Err(without_effect(option, backend)),
    }
}

/// Returns the error for an option that has an effect only with this backend.
pub(crate) fn without_effect(option: &str, backend: &str) -> CommandError {
    CommandError::input(miette!(
        help = format!("omit `{option}`, or add `--backend {backend}`"),
        "`{option}` works only with `--backend {backend}`"
    ))
}

/// Returns the kernel's features for traffic control if `--links tc` is specified. Unless the output is quiet, prints
/// which of them are missing.
fn links(arguments: &RunArguments) -> Result<Option<Kernel>, CommandError> {
    if arguments.links == LinksName::InNode {
        return Ok(None);
    }
    let kernel = doctor::kernel_for_tc()?;
    if !arguments.output.quiet {
        match kernel.delays_at() {
            ShapingSide::Receiver => {}
            ShapingSide::Sender => {
                note("this kernel does not support ifb: packets are delayed at the sender")
            }
            ShapingSide::Node => note(
                "this kernel does not support netem: traffic control limits bandwidth only; latency, jitter and loss are emulated in the nodes, except for the programs of a system",
            ),
        }
    }
    Ok(Some(kernel))
}

/// Opens the port for metrics, if requested.
fn metrics(arguments: &RunArguments) -> Result<Option<Arc<TcpListener>>, CommandError> {
    let Some(address) = arguments.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address).map_err(|error| {
        CommandError::input(miette!(
            help = "use another address or port with `--metrics`, or stop the program that listens there",
            "cannot serve metrics at {address}: {error}"
        ))
    })?;
    Ok(Some(Arc::new(listener)))
}
