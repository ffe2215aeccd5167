//! Determines, without side effects, whether a federation can be run and which processes it consists of.
//!
//! The API server has already checked the rules of the custom resource definition, unless the definition was weakened.
//! The operator checks them again, and everything that they cannot express, with the same code that validates a
//! federation file.

use faultline_api::flow::{flow, unread};
use faultline_api::names::Names;
use faultline_api::resource::{ApplicationSpec, FederationSpec};
use faultline_api::supervision::MAX_PROCESSES;
use faultline_api::{Federation, Problem};

/// A valid federation.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// The federation itself.
    pub federation: Federation,
    /// The processes of the federation. Each group has its own StatefulSet.
    pub groups: Vec<Group>,
    /// Reason why a change was refused, if one was. The federation then continues as before.
    pub refused: Option<Refusal>,
}

/// The processes of a cluster, or one process outside all clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Number of processes.
    pub nodes: u32,
    /// Whether the group is a cluster of the federation.
    pub is_cluster: bool,
}

/// The reason why a federation cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// All problems, with their remedies.
    pub message: String,
}

impl Group {
    /// Returns the name of the process on one of the group's nodes.
    pub fn process(&self, node: u32) -> String {
        if self.is_cluster { format!("{}-{node}", self.name) } else { self.name.clone() }
    }
}

impl Validated {
    /// Returns the number of pods that run processes.
    pub fn nodes(&self) -> u32 {
        self.groups.iter().map(|it| it.nodes).sum()
    }
}

/// Validates a federation.
///
/// # Errors
///
/// Returns the reason why the federation cannot be run.
pub fn validate(federation: &Federation) -> Result<Validated, Refusal> {
    check(federation).map(|()| passed(federation))
}

/// Checks whether a federation can be run. Applies all rules for federation files, which takes longer than the rest of
/// a reconciliation. A federation in pods must not name other files: its pods cannot read them.
///
/// # Errors
///
/// Returns the reason why the federation cannot be run.
pub fn check(federation: &Federation) -> Result<(), Refusal> {
    let mut problems = faultline_api::validate(federation);
    problems.extend(unread_files(&federation.spec));
    if !problems.is_empty() {
        return Err(Refusal { message: described(&problems) });
    }
    Ok(())
}

/// Returns a problem for each file that a federation names.
fn unread_files(spec: &FederationSpec) -> impl Iterator<Item = Problem> {
    let program = match &spec.application {
        ApplicationSpec::Qap(qap) if qap.file.is_some() => flow(&spec.application).and_then(Result::err),
        _ => None,
    };
    program.into_iter().chain(spec.schedule.as_ref().and_then(unread)).chain(unread_programs(spec))
}

/// Returns a problem for each file of a program that a federation names.
fn unread_programs(spec: &FederationSpec) -> Vec<Problem> {
    let protocol = spec.protocol.program().map(|it| ("protocol", it.launch()));
    let application = spec.application.program().map(|it| ("application", it.launch()));
    let mut problems = Vec::new();
    for (kind, program) in protocol.into_iter().chain(application) {
        for (name, file) in program.files {
            let Some(file) = &file.file else { continue };
            problems.push(Problem {
                path: format!("spec.{kind}.program.files.{name}.file"),
                message: format!(
                    "`{file}` cannot be read here: only the `faultline` command reads files named in a federation"
                ),
                help: "copy the content into `text`, or use `faultline run FILE --backend kubernetes`".into(),
            });
        }
    }
    problems
}

/// Returns the problems with their remedies, as text.
pub(super) fn described(problems: &[Problem]) -> String {
    let problems = problems.iter().map(|it| format!("{}: {} ({})", it.path, it.message, it.help));
    problems.collect::<Vec<_>>().join("; ")
}

/// Returns the number of nodes in the clusters of a federation, which need not be valid. The federation has at least
/// this many processes.
pub fn ranks(federation: &Federation) -> u64 {
    federation.spec.clusters.iter().map(|it| u64::from(it.nodes)).sum()
}

/// Checks that a federation of this many processes has no more pods than this operator permits.
///
/// # Errors
///
/// Returns how many pods the federation needs, and how many this operator permits.
pub fn fits(processes: u64, max_pods: u32) -> Result<(), Refusal> {
    let pods = processes + 1;
    if pods <= u64::from(max_pods) {
        return Ok(());
    }
    let message = format!(
        "spec.clusters: {processes} processes and the supervisor need {pods} pods, but this operator creates at most \
         {max_pods} per federation (use fewer nodes, or start the operator with `--max-pods {pods}`)"
    );
    Err(Refusal { message })
}

/// Checks that a federation is small enough for an operator with the largest possible limit. The federation need not be
/// valid. Call this function first: all further work takes time in proportion to the number of processes.
///
/// # Errors
///
/// Returns how many processes the federation has.
pub fn fits_any_operator(federation: &Federation) -> Result<(), Refusal> {
    let processes = ranks(federation);
    if processes < MAX_PROCESSES as u64 {
        return Ok(());
    }
    let message = format!(
        "spec.clusters: {processes} processes are too many for any operator (use fewer than {MAX_PROCESSES} nodes)"
    );
    Err(Refusal { message })
}

/// Returns the validated form of a federation that has already been found valid.
pub fn passed(federation: &Federation) -> Validated {
    Validated { federation: federation.clone(), groups: groups(federation), refused: None }
}

/// Returns the validated form of a federation as it was when its pods were created. The federation has since been
/// changed, and the change was refused.
pub fn unchanged(federation: &Federation, refusal: Refusal) -> Validated {
    Validated { federation: federation.clone(), groups: groups(federation), refused: Some(refusal) }
}

/// Returns the groups of a federation's processes, whether or not it can be run.
pub fn groups(federation: &Federation) -> Vec<Group> {
    let clusters = federation.spec.clusters.iter();
    let mut groups: Vec<Group> =
        clusters.map(|it| Group { name: it.name.clone(), nodes: it.nodes, is_cluster: true }).collect();
    let names = Names::of(&federation.spec);
    groups.extend(names.extra().iter().map(|it| Group { name: it.clone(), nodes: 1, is_cluster: false }));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::build::tests::quickstart;
    use faultline_api::resource::{Qap, ReplicateTo, Schedule};
    use faultline_api::samples;

    #[test]
    fn clusters_and_processes_outside_them_are_groups() {
        let mut federation = quickstart();
        let names = |it: &Validated| it.groups.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&validate(&federation).unwrap()), ["paris", "rennes"]);
        let faultline_api::resource::ProtocolSpec::Hc3i(hc3i) = &mut federation.spec.protocol else {
            panic!("the quick start runs HC3I")
        };
        hc3i.replicate_to = Some(ReplicateTo::SharedStorage);
        let validated = validate(&federation).unwrap();
        assert_eq!(names(&validated), ["paris", "rennes", "storage-server"]);
        assert_eq!(validated.groups[2].process(0), "storage-server");
        assert_eq!(validated.groups[0].process(2), "paris-2");
        assert_eq!(validated.nodes(), 7);
    }

    #[test]
    fn every_process_of_a_sample_has_a_pod() {
        for sample in samples::SAMPLES {
            let federation = faultline_api::parse(sample.name, sample.text.as_bytes()).expect("it is valid");
            let validated = validate(&federation).expect("every sample can be run");
            let places =
                validated.groups.iter().flat_map(|group| (0..group.nodes).map(|it| group.process(it)));
            let mut places: Vec<String> = places.collect();
            let mut awaited = Names::of(&federation.spec).processes();
            places.sort_unstable();
            awaited.sort_unstable();
            assert_eq!(places, awaited, "{}", sample.name);
        }
    }

    #[test]
    fn a_federation_with_more_pods_than_the_operator_creates_is_refused() {
        let processes = ranks(&quickstart());
        assert_eq!(fits(processes, 7), Ok(()));
        let message = fits(processes, 6).unwrap_err().message;
        assert!(message.contains("need 7 pods") && message.contains("--max-pods 7"), "{message}");

        let mut federation = quickstart();
        assert_eq!(fits_any_operator(&federation), Ok(()));
        federation.spec.clusters.iter_mut().for_each(|it| it.nodes = u32::MAX);
        let message = fits_any_operator(&federation).unwrap_err().message;
        assert!(message.contains("8589934590 processes are too many"), "{message}");
    }

    #[test]
    fn a_federation_that_names_another_file_is_refused() {
        type Change = fn(&mut FederationSpec);
        let cases: [(&str, &str, Change); 3] = [
            ("tic", "spec.application.qap.file: `tiny.dat` cannot be read here", |spec| {
                let qap = Qap { file: Some("tiny.dat".into()), ..Qap::default() };
                spec.application = ApplicationSpec::Qap(qap);
            }),
            ("cck", "spec.schedule.file: `planned.part` cannot be read here", |spec| {
                spec.schedule = Some(Schedule { file: Some("planned.part".into()), ..Schedule::default() });
            }),
            (
                "quickstart",
                "spec.application.program.files.a.py.file: `mine.py` cannot be read here",
                |spec| {
                    let file = r#"{ "program": { "command": ["a.py"], "files": { "a.py": { "file": "mine.py" } } } }"#;
                    spec.application = serde_json::from_str(file).expect("it is an application");
                },
            ),
        ];
        for (sample, problem, name_file) in cases {
            let text = samples::sample(sample).expect("it is a sample").text;
            let mut federation = faultline_api::parse(sample, text.as_bytes()).expect("it is valid");
            name_file(&mut federation.spec);
            assert_eq!(faultline_api::validate(&federation), [], "the `faultline` command can run it");
            let message = validate(&federation).unwrap_err().message;
            assert!(message.starts_with(problem) && !message.contains("; "), "{message}");
        }
    }

    #[test]
    fn a_refusal_lists_all_problems_with_remedies() {
        let mut federation = quickstart();
        federation.spec.clusters[1].name = "paris".into();
        federation.spec.deadline = Some("1ms".parse().unwrap());
        let message = validate(&federation).unwrap_err().message;
        assert!(
            message.contains("spec.clusters[1].name: the name `paris` is used by more than one cluster"),
            "{message}"
        );
        assert!(message.contains("spec.deadline"), "{message}");
    }
}
