//! Determines, without side effects, whether a federation can be run.
//!
//! The API server has already checked the rules of the custom resource definition. The operator checks them again, and
//! everything that they cannot express, with the same code that validates a federation file.

use faultline_api::failure_trace::unread_traces;
use faultline_api::flow::{flow, unread};
use faultline_api::resource::{ApplicationSpec, FederationSpec, Kubernetes, ProgramFile, System};
use faultline_api::{Federation, Problem};

/// Checks whether a federation can be run. Applies all rules for federation files, which takes longer than the rest of
/// a reconciliation. A federation in pods must not name other files: its pods cannot read them.
///
/// # Errors
///
/// Returns the reason why the federation cannot be run.
pub fn check(federation: &Federation) -> Result<(), String> {
    let mut problems = faultline_api::validate(federation);
    problems.extend(unread_files(&federation.spec));
    problems.extend(faultline_api::unfit_for_pods(&federation.spec));
    if !problems.is_empty() {
        return Err(described(&problems));
    }
    Ok(())
}

/// Checks that this operator permits the images of a federation.
///
/// # Errors
///
/// Returns the first image that it does not permit, with the remedy.
pub fn images_are_allowed(spec: &FederationSpec, allowed: &[String]) -> Result<(), String> {
    let images = spec.kubernetes.iter().flat_map(Kubernetes::images);
    let refused = { images }.find(|(_, image)| !allowed.iter().any(|it| matches_pattern(image, it)));
    refused.map_or(Ok(()), |(path, image)| {
        Err(format!(
            "{path}: this operator does not permit the image `{image}` (ask an administrator to start the operator with \
             `--allow-images`, or to set `operator.allowImages` in the chart)"
        ))
    })
}

/// Returns whether `text` matches a pattern in which `*` stands for any text.
fn matches_pattern(text: &str, pattern: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(text) = text.strip_prefix(begin) else { return false };
    (0..=text.len()).any(|it| text.is_char_boundary(it) && matches_pattern(&text[it..], rest))
}

/// Returns a problem for each file that a federation names.
fn unread_files(spec: &FederationSpec) -> impl Iterator<Item = Problem> {
    let program = match &spec.application {
        ApplicationSpec::Qap(qap) if qap.file.is_some() => flow(&spec.application).and_then(Result::err),
        _ => None,
    };
    program
        .into_iter()
        .chain(spec.schedule.as_ref().and_then(unread))
        .chain(unread_programs(spec))
        .chain(unread_traces(&spec.faults))
}

/// Returns a problem for each file of a program that a federation names.
fn unread_programs(spec: &FederationSpec) -> Vec<Problem> {
    let protocol = spec.protocol.program().map(|it| ("protocol", it.launch()));
    let application = spec.application.program().map(|it| ("application", it.launch()));
    let of_programs = protocol.into_iter().chain(application).flat_map(|(kind, program)| {
        program.files.iter().map(move |(name, it)| (format!("spec.{kind}.program.files.{name}.file"), it))
    });
    let of_systems = spec.application.system().into_iter().flat_map(System::named_files);
    let of_systems = of_systems.map(|(field, it)| (format!("spec.application.system.{field}.file"), it));
    let unread = |(path, it): (String, &ProgramFile)| {
        let help = "copy the content into `text`, or use `faultline run FILE --backend kubernetes`";
        Some(Problem::unread(path, it.file.as_ref()?, help))
    };
    of_programs.chain(of_systems).filter_map(unread).collect()
}

/// Returns the problems with their remedies, as text.
pub(super) fn described(problems: &[Problem]) -> String {
    let problems = problems.iter().map(|it| format!("{}: {} ({})", it.path, it.message, it.help));
    problems.collect::<Vec<_>>().join("; ")
}

/// Returns the number of nodes in the clusters of a federation, which need not be valid. The federation has at least
/// this many processes.
pub fn ranks(spec: &FederationSpec) -> u64 {
    spec.clusters.iter().map(|it| u64::from(it.nodes)).sum()
}

/// Checks that a federation of this many processes has no more pods than this operator permits.
///
/// # Errors
///
/// Returns how many pods the federation needs, and how many this operator permits.
pub fn fits(processes: u64, max_pods: u32) -> Result<(), String> {
    let pods = processes + 1;
    if pods <= u64::from(max_pods) {
        return Ok(());
    }
    Err(format!(
        "spec.clusters: {processes} processes and the supervisor need {pods} pods, but this operator creates at most \
         {max_pods} per federation (use fewer nodes, or start the operator with `--max-pods {pods}`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::build::tests::quickstart;
    use faultline_api::resource::{Links, Qap, Schedule};
    use faultline_api::samples;

    #[test]
    fn a_federation_with_more_pods_than_the_operator_creates_is_refused() {
        let processes = ranks(&quickstart().spec);
        assert_eq!(fits(processes, 7), Ok(()));
        let message = fits(processes, 6).unwrap_err();
        assert!(message.contains("need 7 pods") && message.contains("--max-pods 7"), "{message}");
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
            let message = check(&federation).unwrap_err();
            assert!(message.starts_with(problem) && !message.contains("; "), "{message}");
        }
    }

    #[test]
    fn a_system_runs_only_in_permitted_images() {
        let text = samples::SYSTEMS[0].text;
        let mut federation = faultline_api::parse("pages", text.as_bytes()).expect("it is valid");
        let spec = &mut federation.spec;
        let message = check(&Federation::new("pages", spec.clone())).unwrap_err();
        assert!(message.contains("spec.kubernetes.image: the pods of `paris` have no image"), "{message}");
        let kubernetes = spec.kubernetes.get_or_insert_default();
        kubernetes.image = Some("registry.example/pages:1".into());
        let site = kubernetes.sites.entry("clients".into()).or_default();
        site.image = Some("registry.example/tools/client:2".into());
        let allowed = |patterns: &[&str]| {
            images_are_allowed(spec, &patterns.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
        };
        for patterns in [&["*"][..], &["registry.example/*"], &["registry.example/pages:1", "*/client:*"]] {
            assert_eq!(allowed(patterns), Ok(()), "{patterns:?}");
        }
        for patterns in [&[][..], &["pages:1"], &["registry.example/pages"], &["*/pages:1"], &["*/x*"]] {
            assert!(
                allowed(patterns).unwrap_err().contains("does not permit the image `registry"),
                "{patterns:?}"
            );
        }
        assert_eq!(check(&federation), Ok(()));
        federation.spec.links = Some(Links::default());
        assert!(check(&federation).unwrap_err().contains("write `links: tc`"));
    }

    #[test]
    fn a_refusal_lists_all_problems_with_remedies() {
        let mut federation = quickstart().to_file();
        federation.spec.clusters[1].name = "paris".into();
        federation.spec.deadline = Some("1ms".parse().unwrap());
        let message = check(&federation).unwrap_err();
        assert!(
            message.contains("spec.clusters[1].name: the name `paris` is used by more than one cluster"),
            "{message}"
        );
        assert!(message.contains("spec.deadline"), "{message}");
    }
}
