//! Finds commands of a system that cannot be started on this machine, before a run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use faultline_api::resource::{Attempt, FederationSpec, System};
use faultline_api::system::{Location, RenderedNode, SystemNode, TemplateError};
use faultline_api::{Names, Problem};
use faultline_core::ProcessId;
use faultline_runtime::system::inherited_environment;
use nix::unistd::{AccessFlags, access};

/// Where programs are looked up if the variable `PATH` is absent.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The working directory of commands. It does not exist before the run.
const DIR: &str = "/faultline-working-directory";
/// The directory with the data of a node. It does not exist before the run either.
const DATA: &str = "/faultline-data";
/// The number of bytes of a script's first line that are read.
const MOST_OF_LINE: u64 = 256;

/// Returns the commands of a system whose program does not exist on this machine, or cannot be executed; none for other
/// federations. What a script starts is unknown before the run.
///
/// # Errors
///
/// Fails if a template cannot be rendered.
pub fn missing_commands(spec: &FederationSpec, seed: u64) -> Result<Vec<Problem>, TemplateError> {
    let Some(system) = spec.application.system() else { return Ok(Vec::new()) };
    let names = Names::of(spec);
    let hosts: Vec<String> = (0..names.ranks()).map(|it| format!("127.0.0.{}", it + 1)).collect();
    let mut problems: Vec<Problem> = Vec::new();
    // Most nodes have the same programs.
    let mut found = BTreeSet::new();
    for process in (0..names.ranks()).map(ProcessId) {
        let location = Location { hosts: hosts.clone(), bind: None, data: DATA.into(), dir: DIR.into() };
        let node = SystemNode::new((spec, system, &names), seed, process, 1, location);
        let rendered = node.render()?;
        for (path, words) in commands(spec, system, &names, process, &node, &rendered)? {
            let program = words.first().map_or("", String::as_str);
            let Err(why) = look_up(program, &rendered) else { continue };
            if found.insert((path.clone(), program.to_owned())) {
                problems.push(problem(path, program, why));
            }
        }
    }
    Ok(problems)
}

fn problem(path: String, program: &str, why: Why) -> Problem {
    let (message, help) = match why {
        Why::Absent => (
            format!("`{program}` does not exist on this machine"),
            "install it, correct its name, or add its directory to `PATH` in `env`".to_owned(),
        ),
        Why::NoFile => (
            format!("`{program}` does not exist: a command runs in a directory that contains only `files`"),
            format!(
                "list it in `files`, or write `[sh, -c, {program}]` for a program that another command creates"
            ),
        ),
        Why::Denied => (
            format!("`{program}` cannot be executed"),
            "make it executable (`chmod +x`), or name the program that reads it".to_owned(),
        ),
        Why::Interpreter(interpreter) => (
            format!("`{program}` is a script for `{interpreter}`, which does not exist on this machine"),
            "install it, or correct the first line of the script".to_owned(),
        ),
    };
    Problem { path, message, help }
}

/// Returns all commands of a node, with the paths of their fields.
fn commands(
    spec: &FederationSpec,
    system: &System,
    names: &Names,
    process: ProcessId,
    node: &SystemNode,
    rendered: &RenderedNode,
) -> Result<Vec<(String, Vec<String>)>, TemplateError> {
    const PATH: &str = "spec.application.system";
    let (name, cluster) = (names.process(process), names.cluster(names.cluster_of(process)));
    let own = system.overrides.get(cluster);
    let field = |field: &str, is_own: bool| match is_own {
        true => format!("{PATH}.in.{cluster}.{field}"),
        false => format!("{PATH}.{field}"),
    };
    let has_command = own.is_some_and(|it| it.command.is_some());
    let mut all = vec![(field("command", has_command), rendered.command.clone())];
    for (entry, words) in spec.later_commands(cluster) {
        all.push((format!("spec.faults[{entry}].restart.command"), node.restarted(entry, words)?));
    }
    let mut add = |path: String, made: Attempt<String>| {
        if let Attempt::Exec(words) = made {
            all.push((path, words));
        }
    };
    if let Some(ready) = &rendered.ready {
        add(field("ready.exec", own.is_some_and(|it| it.ready.is_some())), ready.clone());
    }
    if let Some(set_up) = system.setup.as_ref().filter(|it| it.by == name) {
        let words = set_up.exec.iter().map(String::as_str).collect();
        add(format!("{PATH}.setup.exec"), node.attempt("setup", &Attempt::Exec(words), 0)?);
    }
    for (probe, it) in &system.probes {
        let is_mine = it.by.as_ref().is_none_or(|by| *by == name || by == cluster);
        if let Some(attempt) = it.attempt().filter(|_| is_mine) {
            add(
                format!("{PATH}.probes.{probe}.exec"),
                node.attempt(&format!("probes.{probe}"), &attempt, 0)?,
            );
        }
    }
    for (index, check) in spec.expect.iter().enumerate().filter(|(_, it)| it.check.is_some()) {
        if let Some(words) = check.exec.as_ref().filter(|_| check.by.as_ref() == Some(&name)) {
            add(format!("spec.expect[{index}].exec"), node.check(words)?);
        }
    }
    Ok(all)
}

/// The reason why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// There is no such program.
    Absent,
    /// The working directory will not contain the program.
    NoFile,
    /// It is not executable.
    Denied,
    /// The interpreter of the script does not exist.
    Interpreter(String),
}

/// Looks a program up in the same way as the kernel and the C library do.
fn look_up(program: &str, node: &RenderedNode) -> Result<(), Why> {
    if program.contains('/') {
        return check(Path::new(program), node);
    }
    let own = node.env.iter().rev().find(|it| it.0 == "PATH").map(|it| it.1.clone());
    let inherited = || {
        let mut all = inherited_environment();
        all.find(|it| it.0 == "PATH").map(|it| it.1.to_string_lossy().into_owned())
    };
    let path = own.or_else(inherited).unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let mut why = Why::Absent;
    for dir in path.split(':').filter(|_| !program.is_empty()) {
        let dir = if dir.is_empty() { "." } else { dir };
        match check(&Path::new(dir).join(program), node) {
            Ok(()) => return Ok(()),
            // The search continues, as after a file that is missing.
            Err(Why::Absent | Why::NoFile) => {}
            Err(it) => why = it,
        }
    }
    Err(why)
}

/// Checks that a file can be executed. A relative path is one in the working directory.
fn check(program: &Path, node: &RenderedNode) -> Result<(), Why> {
    let own = match program.strip_prefix(DIR) {
        Ok(own) => Some(own),
        Err(_) => program.is_relative().then_some(program),
    };
    if let Some(own) = own {
        let own: PathBuf = own.components().filter(|it| *it != Component::CurDir).collect();
        // The directory is part of the record, whose place is not known here.
        if own.components().any(|it| it == Component::ParentDir) {
            return Ok(());
        }
        let content = node.files.iter().find(|(name, _)| Path::new(name) == own).map(|it| it.1.as_bytes());
        return content.map_or(Err(Why::NoFile), |it| check_interpreter(it, node));
    }
    // Another command may write it there.
    if program.starts_with(DATA) {
        return Ok(());
    }
    match fs::metadata(program) {
        Ok(it) if it.is_file() && access(program, AccessFlags::X_OK).is_ok() => {}
        Ok(_) => return Err(Why::Denied),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(Why::Denied),
        Err(_) => return Err(Why::Absent),
    }
    let mut first = Vec::new();
    // A program that can be executed, but not read, is no script.
    let read = File::open(program).and_then(|it| it.take(MOST_OF_LINE).read_to_end(&mut first));
    read.map_or(Ok(()), |_| check_interpreter(&first, node))
}

/// Checks that the interpreter of a script exists. `content` begins with the first line.
fn check_interpreter(content: &[u8], node: &RenderedNode) -> Result<(), Why> {
    let Some(line) = content.strip_prefix(b"#!") else { return Ok(()) };
    let line = String::from_utf8_lossy(line.split(|it| *it == b'\n').next().unwrap_or_default()).into_owned();
    let mut words = line.split_whitespace();
    let Some(interpreter) = words.next().filter(|it| it.starts_with('/')) else { return Ok(()) };
    let is_program = fs::metadata(interpreter).is_ok_and(|it| it.is_file());
    if !is_program {
        return Err(Why::Interpreter(interpreter.to_owned()));
    }
    if Path::new(interpreter).file_name() == Some(OsStr::new("env")) {
        // Options and variables may stand before the name.
        let name = words.find(|it| !it.starts_with('-') && !it.contains('=')).unwrap_or_default();
        if !name.is_empty() && look_up(name, node).is_err() {
            return Err(Why::Interpreter(name.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(files: &[(&str, &str)], path: Option<&str>) -> RenderedNode {
        RenderedNode {
            command: Vec::new(),
            env: path.map(|it| ("PATH".to_owned(), it.to_owned())).into_iter().collect(),
            files: files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            ready: None,
        }
    }

    #[test]
    fn a_program_is_looked_up_where_it_will_be() {
        let files = [
            ("bin/a", "#!/bin/sh\n"),
            ("b", "#!/usr/bin/env -S sh -e\n"),
            ("c", "#!/usr/bin/env no-such-shell\n"),
            ("d", "#! /no/such/shell -x\r\n"),
            ("e", "#!/bin/sh -e\n"),
        ];
        let plain = node(&files, None);
        for program in ["sh", "/bin/sh", "./bin/a", "bin/a", "bin/./a", "./b", "../x", "/faultline-data/x"] {
            assert_eq!(look_up(program, &plain), Ok(()), "{program}");
        }
        assert_eq!(look_up("/faultline-working-directory/b", &plain), Ok(()));
        for (program, why) in [
            ("a", Why::Absent),
            ("no-such-program", Why::Absent),
            ("", Why::Absent),
            ("/no/such/program", Why::Absent),
            ("./a", Why::NoFile),
            ("/etc/passwd", Why::Denied),
            ("/etc", Why::Denied),
            ("./c", Why::Interpreter("no-such-shell".into())),
            ("./d", Why::Interpreter("/no/such/shell".into())),
        ] {
            assert_eq!(look_up(program, &plain), Err(why), "{program}");
        }
        assert_eq!(look_up("a", &node(&files, Some("/none:bin"))), Ok(()));
        assert_eq!(look_up("e", &node(&files, Some(""))), Ok(()));
        assert_eq!(look_up("b", &node(&files, Some(""))), Err(Why::Interpreter("sh".into())));
        assert_eq!(look_up("sh", &node(&files, Some("/none"))), Err(Why::Absent));
    }

    #[test]
    fn every_command_of_every_node_is_checked() {
        let text = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: test }
spec:
  clusters: [{ name: a, nodes: 2 }, { name: b, nodes: 1 }]
  application:
    system:
      command: [sleep, '1']
      ready: { exec: [none-ready] }
      setup: { by: b-0, exec: [none-setup] }
      probes: { p: { by: b, exec: [none-probe] }, q: { exec: ['none-{{ node }}'] }, r: { tcp: 'a:1' } }
      in: { b: { command: ['{{ dir }}/none'], ready: {} } }
  expect: [{ probe: r, availability: 0.5 }, { check: x, by: a-1, exec: [none-check] }]
";
        let federation = faultline_api::parse("test.yaml", text.as_bytes()).unwrap();
        let problems = missing_commands(&federation.spec, 1).unwrap();
        let paths: Vec<_> = problems.iter().map(|it| it.path.trim_start_matches("spec.")).collect();
        let system = "application.system";
        assert_eq!(paths[..2], [format!("{system}.ready.exec"), format!("{system}.probes.q.exec")]);
        assert_eq!(paths[2..4], [format!("{system}.probes.q.exec"), "expect[1].exec".to_owned()]);
        let rest = ["in.b.command", "setup.exec", "probes.p.exec"].map(|it| format!("{system}.{it}"));
        assert_eq!(paths[4..], rest);
    }
}
