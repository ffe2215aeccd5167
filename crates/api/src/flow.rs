//! Builds a task-based program from its parameters.

use faultline_dataflow::programs::cloth::Cloth;
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_dataflow::programs::graph::RandomGraph;
use faultline_dataflow::programs::jacobi::Jacobi;
use faultline_dataflow::programs::qap::{Instance, Malformed, Qap};
use faultline_dataflow::programs::queens::Queens;
use faultline_dataflow::programs::{Flow, Invalid};

use crate::resource::{self, ApplicationSpec};
use crate::validate::Problem;

/// Returns the task-based program that a federation requests; `None` for an application that exchanges messages.
///
/// # Errors
///
/// Fails if a parameter is out of range, if the program has too many tasks, if the text of a quadratic assignment
/// problem is malformed, or if the text is in a file that has not been [read](with_file).
pub fn flow(application: &ApplicationSpec) -> Option<Result<Flow, Problem>> {
    let flow = match application {
        ApplicationSpec::Fibonacci(it) => {
            Flow::Fibonacci(Fibonacci { n: it.n(), threshold: it.threshold(), task_time: it.task_time() })
        }
        ApplicationSpec::NQueens(it) => {
            Flow::Queens(Queens { n: it.n(), depth: it.depth(), task_time: it.task_time() })
        }
        ApplicationSpec::Qap(it) => match instance(it) {
            Ok(instance) => {
                let depth = it.depth.unwrap_or(it.depth().min(instance.size()));
                Flow::Qap(Qap::new(instance, depth, it.task_time()))
            }
            Err(problem) => return Some(Err(problem)),
        },
        ApplicationSpec::TaskGraph(it) => Flow::Graph(RandomGraph {
            seed: it.pattern().into(),
            depth: it.depth(),
            width: it.width(),
            task_time: it.task_time(),
        }),
        ApplicationSpec::Cloth(it) => Flow::Cloth(Cloth {
            rows: it.rows(),
            columns: it.columns(),
            size: it.size(),
            iterations: it.iterations(),
            task_time: it.task_time(),
        }),
        ApplicationSpec::Jacobi(it) => Flow::Jacobi(Jacobi {
            rows: it.rows(),
            columns: it.columns(),
            size: it.size(),
            iterations: it.iterations(),
            test_every: it.test_every(),
            tolerance: it.tolerance(),
            task_time: it.task_time(),
        }),
        _ => return None,
    };
    let path = format!("spec.application.{}", application.name());
    let problem = |invalid: Invalid| Problem {
        path: match invalid {
            Invalid::OutOfRange { field, .. } => format!("{path}.{field}"),
            Invalid::TooManyTasks { .. } | Invalid::TooLong { .. } => path,
        },
        message: invalid.to_string(),
        help: invalid.remedy(),
    };
    Some(flow.validate().map_err(problem).map(|()| flow))
}

/// Returns the same application with the text of its file instead of the file's name. Only `qap` has a file; any other
/// application is returned unchanged.
///
/// # Errors
///
/// Fails if the text is not an instance of the quadratic assignment problem.
pub fn with_file(application: &ApplicationSpec, text: String) -> Result<ApplicationSpec, Malformed> {
    let ApplicationSpec::Qap(qap) = application else { return Ok(application.clone()) };
    Instance::parse(&text)?;
    Ok(ApplicationSpec::Qap(resource::Qap { file: None, data: Some(text), ..qap.clone() }))
}

/// Parses the text of a METIS partition file, which has one number per line. Returns the process of each piece.
///
/// # Errors
///
/// Fails at the first line that is not a number, and names it.
pub fn pieces(text: &str) -> Result<Vec<u32>, String> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(index, line)| {
            line.parse().map_err(|_| format!("line {}: `{line}` is not the number of a process", index + 1))
        })
        .collect()
}

/// Returns a problem if a schedule still names a file, which only the `faultline` command can read; `None` if it names
/// no file.
pub fn unread(schedule: &resource::Schedule) -> Option<Problem> {
    let file = schedule.file.as_ref()?;
    Some(Problem::unread("spec.schedule.file", file, "copy the numbers from the file into `pieces`"))
}

fn instance(qap: &resource::Qap) -> Result<Instance, Problem> {
    if let Some(file) = &qap.file {
        let help = "copy the text of the file into `data`";
        return Err(Problem::unread("spec.application.qap.file", file, help));
    }
    if let Some(text) = &qap.data {
        return Instance::parse(text).map_err(|error| Problem {
            path: "spec.application.qap.data".into(),
            message: error.to_string(),
            help: error.remedy(),
        });
    }
    let text = Qap::shipped(qap.instance.unwrap_or_default().name()).expect("every instance is built in");
    Ok(Instance::parse(text).expect("built-in instances are valid"))
}
