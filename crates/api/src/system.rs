//! The templates of a system: what each node is given.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::ProcessId;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};
use serde::Serialize;

use crate::names::Names;
use crate::resource::{Attempt, Clients, FederationSpec, OnNode, System, TEMPLATE};

/// The maximum number of steps that a template may take, so that a check takes little time.
const MOST_STEPS: u64 = 20_000;

/// A template that cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The field that contains the template, such as `command[2]`.
    pub field: String,
    /// Description of the problem.
    pub message: String,
    /// Suggested fix.
    pub help: String,
}

/// A node of a system, in one of its lives.
#[derive(Clone, Debug)]
pub struct SystemNode {
    system: System,
    cluster: String,
    given: Given,
}

/// What templates and environment variables are given. The fields have the names by which templates refer to them.
#[derive(Clone, Debug, Serialize)]
struct Given {
    name: String,
    cluster: String,
    node: u32,
    index: u32,
    host: String,
    bind: String,
    data: String,
    dir: String,
    life: u32,
    seed: u64,
    nodes: Vec<Peer>,
}

/// A node as the others know it.
#[derive(Clone, Debug, Serialize)]
struct Peer {
    name: String,
    cluster: String,
    node: u32,
    host: String,
}

/// Where a node runs.
#[derive(Clone, Debug)]
pub struct Location {
    /// The host name or address of each node, indexed by process.
    pub hosts: Vec<String>,
    /// The address of the node, if it is not its host.
    pub bind: Option<String>,
    /// The directory with the data of the node.
    pub data: String,
    /// The working directory.
    pub dir: String,
}

/// Everything that a node runs, after its templates have been rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedNode {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// The content of each file in the working directory, by relative path.
    pub files: Vec<(String, String)>,
    /// The attempt that must succeed before the node is ready, if there is one.
    pub ready: Option<Attempt<String>>,
}

impl SystemNode {
    /// Returns the node of a rank. `names` are those of the federation.
    ///
    /// # Panics
    ///
    /// Panics if the federation has no such rank.
    pub fn new(
        (spec, system, names): (&FederationSpec, &System, &Names),
        seed: u64,
        process: ProcessId,
        life: u32,
        location: Location,
    ) -> SystemNode {
        let Location { hosts, bind, data, dir } = location;
        let peer = |(it, host): (u32, &String)| {
            let it = ProcessId(it);
            let cluster = names.cluster_of(it);
            let node = it.0 - names.processes_of(cluster).start;
            let cluster = names.cluster(cluster).to_owned();
            Peer { name: names.process(it), cluster, node, host: host.clone() }
        };
        let nodes: Vec<Peer> = (0..names.ranks()).zip(&hosts).map(peer).collect();
        let Peer { name, cluster, node, host } = nodes[process.index()].clone();
        let own = spec.clusters[names.cluster_of(process).index()].name.clone();
        let bind = bind.unwrap_or_else(|| host.clone());
        let index = process.0;
        let given = Given { name, cluster, node, index, host, bind, data, dir, life, seed, nodes };
        SystemNode { system: system.clone(), cluster: own, given }
    }

    /// Returns what runs on the node, before its templates are rendered.
    pub fn stated(&self) -> OnNode<'_> {
        self.system.on(&self.cluster)
    }

    /// Returns everything that the node runs.
    ///
    /// # Errors
    ///
    /// Fails if a template cannot be rendered.
    pub fn render(&self) -> Result<RenderedNode, TemplateError> {
        let (rendered, errors) = self.render_all();
        errors.into_iter().next().map_or(Ok(rendered), Err)
    }

    /// Returns everything that the node runs, except for what cannot be rendered, with an error for each such field.
    fn render_all(&self) -> (RenderedNode, Vec<TemplateError>) {
        let OnNode { command, env, files, ready, .. } = self.stated();
        let renderer = Renderer::new();
        let own = self.system.overrides.get(&self.cluster);
        // The field in which the file states a value.
        let field = |name: &str, is_own: bool| match is_own {
            true => format!("in.{}.{name}", self.cluster),
            false => name.to_owned(),
        };
        let field_of_command = field("command", own.is_some_and(|it| it.command.is_some()));
        let field_of_env = field("env", own.is_some_and(|it| it.env.is_some()));
        let field_of_files = field("files", own.is_some_and(|it| it.files.is_some()));
        let field_of_ready = field("ready", own.is_some_and(|it| it.ready.is_some()));
        let given = Value::from(Serde(&self.given));
        let mut errors = Vec::new();
        let mut keep = |rendered: Result<String, TemplateError>| rendered.map_err(|it| errors.push(it)).ok();
        let command = command
            .iter()
            .enumerate()
            .filter_map(|(at, it)| keep(renderer.render(&format!("{field_of_command}[{at}]"), it, &given)));
        let command = command.collect();
        let rendered_env = env.iter().filter_map(|(name, it)| {
            Some((name.clone(), keep(renderer.render(&format!("{field_of_env}.{name}"), it, &given))?))
        });
        let env = rendered_env.collect();
        let rendered_files = files.iter().filter_map(|(name, file)| {
            let text = file.text.as_deref().unwrap_or_default();
            let Some(target) = name.strip_suffix(TEMPLATE) else {
                return Some((name.clone(), text.to_owned()));
            };
            let text = keep(renderer.render(&format!("{field_of_files}.{name}"), text, &given))?;
            Some((target.to_owned(), text))
        });
        let files = rendered_files.collect();
        let ready = ready
            .and_then(|it| it.attempt())
            .and_then(|it| renderer.attempt(&field_of_ready, &it, &given).map_err(|it| errors.push(it)).ok());
        (RenderedNode { command, env, files, ready }, errors)
    }

    /// Returns an attempt of this node. `sample` is the number of the attempt.
    ///
    /// # Errors
    ///
    /// Fails if a template cannot be rendered.
    pub fn attempt(
        &self,
        field: &str,
        attempt: &Attempt<&str>,
        sample: u64,
    ) -> Result<Attempt<String>, TemplateError> {
        let given = context! { sample, ..Value::from(Serde(&self.given)) };
        Renderer::new().attempt(field, attempt, &given)
    }

    /// Returns the command of a check that this node carries out.
    ///
    /// # Errors
    ///
    /// Fails if a template cannot be rendered.
    pub fn check(&self, words: &[String]) -> Result<Attempt<String>, TemplateError> {
        Renderer::new().words("exec", words, &Value::from(Serde(&self.given))).map(Attempt::Exec)
    }

    /// Returns the command that this node runs after a fault with this number in the list has restarted it.
    ///
    /// # Errors
    ///
    /// Fails if a template cannot be rendered.
    pub fn restarted(&self, entry: usize, words: &[String]) -> Result<Vec<String>, TemplateError> {
        let field = format!("faults[{entry}].restart.command");
        Renderer::new().words(&field, words, &Value::from(Serde(&self.given)))
    }

    /// Returns the command of clients that this node runs.
    ///
    /// # Errors
    ///
    /// Fails if a template cannot be rendered.
    pub fn client(&self, name: &str, clients: &Clients) -> Result<Vec<String>, TemplateError> {
        let field = format!("clients.{name}.command");
        Renderer::new().words(&field, &clients.command, &Value::from(Serde(&self.given)))
    }

    /// Returns the name and the host of each node.
    pub fn nodes(&self) -> Vec<(String, String)> {
        self.given.nodes.iter().map(|it| (it.name.clone(), it.host.clone())).collect()
    }

    /// Returns the environment variables that every command of the node has, in addition to those in the file.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let Given { name, cluster, node, index, host, bind, data, dir, life, seed, nodes } = &self.given;
        let nodes: Vec<String> = nodes.iter().map(|it| format!("{}={}", it.name, it.host)).collect();
        let variables = [
            ("NAME", name.clone()),
            ("CLUSTER", cluster.clone()),
            ("NODE", node.to_string()),
            ("INDEX", index.to_string()),
            ("HOST", host.clone()),
            ("BIND", bind.clone()),
            ("DATA", data.clone()),
            ("DIR", dir.clone()),
            ("LIFE", life.to_string()),
            ("SEED", seed.to_string()),
            ("NODES", nodes.join(",")),
        ];
        variables.into_iter().map(|(name, value)| (format!("FAULTLINE_{name}"), value)).collect()
    }

    /// Returns a problem for each field whose template cannot be rendered, or whose address is invalid.
    pub(crate) fn problems(&self) -> Vec<TemplateError> {
        let of_probes = self
            .system
            .probes
            .iter()
            .filter_map(|(name, it)| self.attempt(&format!("probes.{name}"), &it.attempt()?, 1).err());
        let of_setup = self.system.setup.iter().filter_map(|it| {
            let words = it.exec.iter().map(String::as_str).collect();
            self.attempt("setup", &Attempt::Exec(words), 1).err()
        });
        let of_clients = self.system.clients.iter().filter_map(|(name, it)| self.client(name, it).err());
        self.render_all().1.into_iter().chain(of_setup).chain(of_probes).chain(of_clients).collect()
    }
}

/// Renders the templates of one node.
struct Renderer(Environment<'static>);

impl Renderer {
    fn new() -> Renderer {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(MOST_STEPS));
        environment
            .set_syntax(SyntaxConfig::builder().keep_trailing_newline(true).build().unwrap_or_default());
        Renderer(environment)
    }

    fn render(&self, field: &str, template: &str, given: &Value) -> Result<String, TemplateError> {
        if !["{{", "{%", "{#"].iter().any(|it| template.contains(it)) {
            return Ok(template.to_owned());
        }
        self.0.render_str(template, given).map_err(|error| {
            let (message, help) = match error.kind() {
                ErrorKind::OutOfFuel => ("the template takes too many steps".to_owned(), "use shorter loops"),
                kind => {
                    let detail = error.detail().map(str::to_owned).or_else(|| self.unknown(template, given));
                    let detail = detail.map(|it| format!(": {it}")).unwrap_or_default();
                    let line = error.line().filter(|_| template.trim_end().contains('\n'));
                    let line = line.map(|it| format!(" (line {it} of the template)")).unwrap_or_default();
                    let message = format!("the template cannot be rendered: {kind}{detail}{line}");
                    (message, "docs/systems.md lists what templates can use")
                }
            };
            TemplateError { field: field.to_owned(), message, help: help.to_owned() }
        })
    }

    /// Returns the names in a template that have no value; `None` if there are none.
    fn unknown(&self, template: &str, given: &Value) -> Option<String> {
        let used = self.0.template_from_str(template).ok()?.undeclared_variables(false);
        let is_given = |name: &str| given.get_attr(name).is_ok_and(|it| !it.is_undefined());
        let unknown: BTreeSet<String> = used.into_iter().filter(|it| !is_given(it)).collect();
        (!unknown.is_empty())
            .then(|| unknown.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", "))
    }

    fn words<T: AsRef<str>>(
        &self,
        field: &str,
        words: &[T],
        given: &Value,
    ) -> Result<Vec<String>, TemplateError> {
        let word = |(at, it): (usize, &T)| self.render(&format!("{field}[{at}]"), it.as_ref(), given);
        words.iter().enumerate().map(word).collect()
    }

    fn attempt(
        &self,
        field: &str,
        attempt: &Attempt<&str>,
        given: &Value,
    ) -> Result<Attempt<String>, TemplateError> {
        Ok(match attempt {
            Attempt::Exec(words) => Attempt::Exec(self.words(&format!("{field}.exec"), words, given)?),
            Attempt::Http(url) => {
                let field = format!("{field}.http");
                let url = self.render(&field, url, given)?;
                let address = url.strip_prefix("http://").and_then(|it| it.split(['/', '?', '#']).next());
                let message = format!("`{url}` is not the address of a page without encryption");
                let help = "write `http://HOST:PORT/PATH`";
                if !address.is_some_and(|it| is_address(it, false)) {
                    return Err(TemplateError { field, message, help: help.to_owned() });
                }
                Attempt::Http(url)
            }
            Attempt::Tcp(address) => {
                let field = format!("{field}.tcp");
                let address = self.render(&field, address, given)?;
                if !is_address(&address, true) {
                    let message = format!("`{address}` is not an address");
                    return Err(TemplateError { field, message, help: "write `HOST:PORT`".to_owned() });
                }
                Attempt::Tcp(address)
            }
        })
    }
}

/// Returns whether a text is a host with a port, which may be missing unless it is needed.
fn is_address(text: &str, needs_port: bool) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |it: &str| !it.starts_with('+') && it.parse::<u16>().is_ok_and(|it| it > 0);
    !host.is_empty() && !host.contains('@') && port.map_or(!needs_port, is_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ApplicationSpec;

    fn parsed(fields: &str) -> Result<crate::Federation, Box<crate::Rejected>> {
        let text = format!(
            "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: test }}
spec:
  clusters: [{{ name: paris, nodes: 2 }}, {{ name: clients, nodes: 1 }}]
  application:
    system:
{fields}
"
        );
        crate::parse("test.yaml", text.as_bytes())
    }

    fn rendered(process: u32, word: &str) -> Result<String, String> {
        let parsed =
            parsed(&format!("      command: [run, {word:?}]")).map_err(|it| it.errors()[0].to_string())?;
        let ApplicationSpec::System(system) = &parsed.spec.application else { panic!("it is a system") };
        let location = Location {
            hosts: (1..4).map(|it| format!("127.9.9.{it}")).collect(),
            bind: None,
            data: "/data".to_owned(),
            dir: "/dir".to_owned(),
        };
        let names = Names::of(&parsed.spec);
        let node = SystemNode::new((&parsed.spec, system, &names), 7, ProcessId(process), 2, location);
        let variables = node.environment();
        assert_eq!(variables["FAULTLINE_LIFE"], "2");
        assert_eq!(variables["FAULTLINE_NODES"], "paris-0=127.9.9.1,paris-1=127.9.9.2,clients-0=127.9.9.3");
        Ok(node.render().map_err(|it| it.to_string())?.command.remove(1))
    }

    #[test]
    fn templates_know_the_node_and_its_peers() {
        assert_eq!(
            rendered(1, "{{ name }} {{ node }} {{ index }} {{ bind }} {{ life }} {{ seed }}").unwrap(),
            "paris-1 1 1 127.9.9.2 2 7"
        );
        let peers = r#"{% for n in nodes if n.cluster != 'clients' %}{{ n.name }}=http://{{ n.host }}:2380{{ ',' if not loop.last }}{% endfor %}"#;
        assert_eq!(
            rendered(2, peers).unwrap(),
            "paris-0=http://127.9.9.1:2380,paris-1=http://127.9.9.2:2380"
        );
        assert_eq!(rendered(0, "{{ 2379 + index * 10 }} {{ data }}").unwrap(), "2379 /data");
    }

    #[test]
    fn a_template_that_cannot_be_rendered_is_an_error_of_the_file() {
        for (word, part) in [
            ("{{ nme }}", "undefined value: `nme`"),
            ("${{nosuch}} {{ name }} {% for it in nodes %}{{ it.host }}{% endfor %}", "value: `nosuch`"),
            ("{{ name", "syntax error"),
            ("{% for a in range(99999) %}x{% endfor %}", "too many steps"),
        ] {
            let error = rendered(0, word).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn addresses_have_a_valid_port() {
        for (text, with_port, without_port) in [
            ("127.0.0.1:80", true, true),
            ("[::1]:8080", true, true),
            ("a.example", false, true),
            ("[::1]", false, true),
            ("a:", false, false),
            ("a:0", false, false),
            ("a:80x", false, false),
            ("a:-1", false, false),
            ("a:+1", false, false),
            ("a:99999", false, false),
            (":80", false, false),
            ("", false, false),
            ("user@a:80", false, false),
        ] {
            assert_eq!(
                (is_address(text, true), is_address(text, false)),
                (with_port, without_port),
                "{text}"
            );
        }
    }

    #[test]
    fn each_field_that_cannot_be_rendered_is_a_problem() {
        let fields = "      command: [run, '{{ a }}', '{{ b }}', '{{ name }}']
      env: { C: '{{ c }}', D: '{{ host }}' }
      files: { e.txt.j2: { text: '{{ e }}' }, f.txt: { text: '{{ f }}' } }
      ready: { tcp: '{{ host }}:80x' }
      setup: { by: paris-0, exec: [set-up, '{{ g }}'] }
      probes: { p: { by: paris-0, http: 'http:/{{ host }}' } }";
        let found: Vec<String> =
            parsed(fields).unwrap_err().errors().iter().map(ToString::to_string).collect();
        let all =
            ["`a`", "`b`", "`c`", "`e`", "`g`", ":80x` is not an address", "is not the address of a page"];
        assert!(all.iter().all(|part| found.iter().any(|it| it.contains(part))), "{found:?}");
        assert_eq!(found.len(), all.len(), "{found:?}");
    }
}
