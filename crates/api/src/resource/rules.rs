//! The CEL rules of the custom resource definition, which API servers evaluate.
//!
//! Each rule repeats a check of [`crate::validate()`] or [`crate::live`], as far as CEL allows. API servers limit the
//! cost of a rule, and assume that a string of unknown length is very long. Messages therefore name the value but not
//! the entry of a list, and are built in the loop that finds the value.

use faultline_core::Role;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::{ANY, MAX_CLUSTERS, MAX_FAULTS, MAX_NODES, Preset, ProtocolSpec};
use crate::names::Names;
use crate::quantity::{Cores, Duration, Period, Size};
use crate::validate::{MAX_STATEFUL_SET, NAME_HELP, RESERVED, SERVER};

/// A rule of a schema (`x-kubernetes-validations`). API servers reject objects for which its expression is false.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    rule: String,
    message: Option<String>,
    message_expression: Option<String>,
    field_path: Option<String>,
}

impl Rule {
    /// Returns the rule that this expression is true.
    pub(super) fn new(rule: impl Into<String>) -> Rule {
        Rule { rule: rule.into(), message: None, message_expression: None, field_path: None }
    }

    /// Adds the message for objects that break the rule.
    pub(super) fn message(self, message: impl Into<String>) -> Rule {
        Rule { message: Some(message.into()), ..self }
    }

    /// Adds an expression that returns the message for objects that break the rule.
    fn message_expression(self, expression: impl Into<String>) -> Rule {
        Rule { message_expression: Some(expression.into()), ..self }
    }

    /// Adds the field to which the message refers.
    fn field_path(self, path: impl Into<String>) -> Rule {
        Rule { field_path: Some(path.into()), ..self }
    }
}

/// Returns the rules for a federation as a whole: those for its name, which its spec does not contain.
pub fn naming_rules() -> Vec<Rule> {
    vec![
        is_named(),
        short_names(),
        short_name_for(Role::RECOVERY_PROCESS),
        short_name_for(Role::EVENT_LOGGER),
        short_name_for_server(),
        short_name_for_servers(10),
        short_name_for_servers(100),
        short_name_for_servers(1000),
    ]
}

/// Rule for a federation: its name can be part of the names of other objects.
fn is_named() -> Rule {
    let message = format!("'`' + self.metadata.name + '` is not a valid name for a federation: {NAME_HELP}'");
    Rule::new("size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message_expression(message)
}

/// Rule for a federation: the names of its StatefulSets are short enough.
fn short_names() -> Rule {
    let most = MAX_STATEFUL_SET - 1;
    let message = format!(
        "the name of the federation and the name of each cluster must have at most {most} characters in total"
    );
    Rule::new(format!("self.spec.clusters.all(c, size(self.metadata.name) + size(c.name) <= {most})"))
        .message(message)
}

/// Rule for a federation: if its protocol always needs a process with this role, the name of the process's StatefulSet
/// is short enough.
fn short_name_for(role: Role) -> Rule {
    let conditions = ProtocolSpec::that_need(role).map(|it| format!("has(self.spec.protocol.{it})"));
    short_set(&Names::extra_of(&[role])[0], conditions.collect())
}

/// Rule for a federation: if it has a storage server, the name of the server's StatefulSet is short enough.
fn short_name_for_server() -> Rule {
    let conditions = ProtocolSpec::that_replicate().map(|it| {
        let replicas = format!("self.spec.protocol.{it}.replicas");
        format!("({} && (!has({replicas}) || {replicas} > 0))", shares_storage(it))
    });
    short_set(SERVER, conditions.collect())
}

/// Rule for a federation: if it has more than `number` storage servers, which only `cck` supports, the name of the
/// StatefulSet for the server with this number is short enough.
fn short_name_for_servers(number: u32) -> Rule {
    let exceeds = |field: &str| {
        let field = format!("self.spec.protocol.cck.{field}");
        format!("has({field}) && {field} > {number}")
    };
    let condition =
        format!("{} && ({} || {})", shares_storage("cck"), exceeds("servers"), exceeds("replicas"));
    short_set(&format!("{SERVER}-{number}"), vec![condition])
}

/// Rule for a federation: the name of a StatefulSet that ends with `name` is short enough, if the set exists, which is
/// the case under any of the conditions. The message contains no number that the rule computes, because API servers
/// would assume that its text is very long.
fn short_set(name: &str, conditions: Vec<String>) -> Rule {
    let most = MAX_STATEFUL_SET - 1 - name.len();
    let message = format!(
        "'`' + self.metadata.name + '-{name}` is too long for the names of pods: shorten the name of the federation to \
         at most {most} characters'"
    );
    Rule::new(format!(
        "size(self.metadata.name) <= {most} || !has(self.spec.protocol) || !({})",
        conditions.join(" || ")
    ))
    .message_expression(message)
}

/// Returns the condition that a federation has this protocol, with shared storage.
fn shares_storage(protocol: &str) -> String {
    let options = format!("self.spec.protocol.{protocol}");
    format!("has({options}) && has({options}.replicateTo) && {options}.replicateTo == 'sharedStorage'")
}

/// Rule for a cluster: its name is not reserved.
pub(super) fn is_not_reserved() -> Rule {
    let reserved: Vec<String> = RESERVED.iter().map(|it| format!("'{it}'")).collect();
    let message =
        "'a cluster must not be named `' + self.name + '`: choose another name; this one is reserved'";
    Rule::new(format!("!(self.name in [{}]) && !self.name.matches('^{SERVER}-[0-9]+$')", reserved.join(", ")))
        .message_expression(message)
        .field_path(".name")
}

/// Rule: the federation has a protocol, unless it is a system, which has none.
pub(super) fn has_a_protocol() -> Rule {
    Rule::new("has(self.protocol) != has(self.application.system)")
        .message("`protocol` is required, except for a system, which runs without one")
}

/// Rule: the federation has at most [`MAX_NODES`] nodes.
pub(super) fn few_nodes() -> Rule {
    let message = format!("the federation has too many nodes: reduce the total to at most {MAX_NODES}");
    Rule::new(format!("self.clusters.map(c, c.nodes).sum() <= {MAX_NODES}"))
        .message(message)
        .field_path(".clusters")
}

/// Rule: the cluster at this end of each entry in `links.pairs` exists.
pub(super) fn pairs_name_clusters(field: &str) -> Rule {
    let wrong = format!("!self.clusters.exists(c, c.name == p.{field})");
    let message = format!(
        "self.links.pairs.map(p, {wrong}, 'there is no cluster `' + p.{field} + '` (found in `{field}` of a pair)')[0]"
    );
    Rule::new(format!("!has(self.links) || !has(self.links.pairs) || !self.links.pairs.exists(p, {wrong})"))
        .message_expression(message)
        .field_path(".links.pairs")
}

/// The fields with the cluster, or the first end, that a fault concerns.
pub(super) const TARGETS: [&str; 13] = [
    "crash.cluster",
    "stop.cluster",
    "restart.cluster",
    "pause.cluster",
    "loseCluster.cluster",
    "loseRack.cluster",
    "slow.cluster",
    "flip.cluster",
    "slowStorage.cluster",
    "fullStorage.cluster",
    "corruptStorage.cluster",
    "link.from",
    "partition.from",
];
/// The actions of faults that concern a node.
pub(super) const WITH_NODES: [&str; 8] =
    ["crash", "stop", "pause", "slow", "flip", "slowStorage", "fullStorage", "corruptStorage"];

/// Rule: the cluster in these fields of each fault exists, or is `any`. A fault has at most one of the fields, so that
/// the clusters are searched once for each fault: API servers add the costs of all rules, and limit the sum.
pub(super) fn name_clusters(fields: &[&str]) -> Rule {
    let target = first_of(fields, |it| format!("f.{it}"), &format!("'{ANY}'"));
    let field = first_of(fields, |it| format!("'{it}'"), "''");
    let wrong = format!("[{target}].exists(n, n != '{ANY}' && !self.clusters.exists(c, c.name == n))");
    let text = format!(
        "'there is no cluster `' + {target} + '` (found in `' + {field} + '` of a fault): use the name of a cluster, \
         or `{ANY}`'"
    );
    of_faults(&wrong, &text)
}

/// Rule: the node of each fault exists in its cluster or, for `any`, in every cluster. A fault has at most one of these
/// fields.
pub(super) fn name_nodes(fields: &[&str]) -> Rule {
    let of = |field: &str| fields.iter().map(|it| format!("{it}.{field}")).collect::<Vec<String>>();
    let (clusters, nodes) = (of("cluster"), of("node"));
    let cluster = first_of(&clusters, |it| format!("f.{it}"), &format!("'{ANY}'"));
    let node = first_of(&nodes, |it| format!("f.{it}"), "-1");
    let field = first_of(&nodes, |it| format!("'{it}'"), "''");
    let wrong = format!(
        "[{cluster}].exists(n, [{node}].exists(i, self.clusters.exists(c, (n == '{ANY}' || n == c.name) && i >= c.nodes)))"
    );
    let text = format!(
        "({cluster} != '{ANY}' ? 'cluster `' + {cluster} + '`' : 'the smallest cluster') + ' has no node with the \
         number in `' + {field} + '` of a fault: its nodes are numbered from 0; use a smaller number, or omit `node`'"
    );
    of_faults(&wrong, &text)
}

/// Returns the value for the first of these fields (`crash.node`) that the fault `f` has, or `otherwise`.
fn first_of<T: AsRef<str>>(fields: &[T], value: impl Fn(&str) -> String, otherwise: &str) -> String {
    let choices = fields.iter().map(AsRef::as_ref).map(|field| {
        let (action, _) = field.split_once('.').expect("a field of an action");
        format!("has(f.{action}) && has(f.{field}) ? {} : ", value(field))
    });
    format!("({}{otherwise})", choices.collect::<String>())
}

/// Rule: a trigger that names a node also names the node's cluster.
pub(super) fn trigger_names_a_cluster() -> Rule {
    let wrong =
        format!("has(f.when) && has(f.when.node) && (!has(f.when.cluster) || f.when.cluster == '{ANY}')");
    of_faults(
        &wrong,
        "'`when.node` of a fault requires the name of its cluster: add `when.cluster`, or omit `node`'",
    )
}

/// Message about a jitter that exceeds the latency.
const JITTER: &str =
    "the jitter exceeds the latency, so delays could be negative: choose a jitter no larger than the latency";

/// Rule for links: the jitter of the links in this field does not exceed their latency.
pub(super) fn jitter_within_latency(field: &str) -> Rule {
    let link = format!("self.{field}");
    let wrong = exceeds_latency(&link, &latency_of_preset(base(field)));
    Rule::new(format!("!has({link}) || !({wrong})")).message(JITTER).field_path(format!(".{field}"))
}

/// Rule for links: no exception has a jitter that exceeds its latency.
pub(super) fn jitter_within_latency_of_pairs() -> Rule {
    let wrong = exceeds_latency("p", &latency_of_class("self", "p"));
    Rule::new(format!("!has(self.pairs) || !self.pairs.exists(p, {wrong})"))
        .message(JITTER)
        .field_path(".pairs")
}

/// Rule: no fault sets a jitter that exceeds the latency.
pub(super) fn jitter_within_latency_of_faults() -> Rule {
    let [stated, default] = ["self.links", ""].map(|links| latency_of_class(links, "f.link"));
    let class = format!("(has(self.links) ? {stated} : {default})");
    let wrong = exceeds_latency("f.link", &latency_of_exception("f.link", &class));
    Rule::new(format!("!has(self.faults) || !self.faults.exists(f, has(f.link) && {wrong})"))
        .message(JITTER)
        .field_path(".faults")
}

/// Returns the condition that a link has a jitter that exceeds its latency. `base` is the latency of a link that has
/// neither a latency nor a preset.
fn exceeds_latency(link: &str, base: &str) -> String {
    format!("has({link}.jitter) && {} > {}", span(&format!("{link}.jitter")), latency_of(link, base))
}

/// Returns the latency of a link.
fn latency_of(link: &str, base: &str) -> String {
    let presets = Preset::ALL.map(|preset| {
        let name = serde_json::to_value(preset).expect("a preset serialises");
        format!("{name}: {}", latency_of_preset(preset))
    });
    let presets = presets.join(", ").replace('"', "'");
    let stated = span(&format!("{link}.latency"));
    format!("(has({link}.latency) ? {stated} : has({link}.preset) ? {{{presets}}}[{link}.preset] : {base})")
}

/// Returns the latency of the class to which a link belongs. `links` are the links of the federation; empty if it does
/// not describe them.
fn latency_of_class(links: &str, link: &str) -> String {
    let [within, between] = ["within", "between"].map(|field| {
        let (class, default) = (format!("{links}.{field}"), latency_of_preset(default(field)));
        let stated = latency_of(&class, &latency_of_preset(base(field)));
        if links.is_empty() { default } else { format!("(has({class}) ? {stated} : {default})") }
    });
    format!("({} ? {within} : {between})", is_within(link))
}

/// Returns the latency of the exception for the two ends of `link`, or `class`, the latency of the link's class, if
/// there is none. The lists of one element name a value: API servers multiply the cost of a second search, and of
/// everything that is computed for each exception.
fn latency_of_exception(link: &str, class: &str) -> String {
    let stated = latency_of("p", class);
    format!(
        "[has(self.links) && has(self.links.pairs) && has({link}.from) && has({link}.to) \
         ? self.links.pairs.filter(p, p.from == {link}.from && p.to == {link}.to) : []]\
         .map(l, l.size() > 0 ? [l[0]].map(p, {stated})[0] : {class})[0]"
    )
}

/// Returns the condition that a link is within a cluster. A fault need not name the ends of its link, and a link whose
/// ends are drawn is between two clusters.
fn is_within(link: &str) -> String {
    format!("has({link}.from) && has({link}.to) && {link}.from == {link}.to && {link}.from != '{ANY}'")
}

/// Returns the preset of properties that a class of links omits.
fn base(field: &str) -> Preset {
    if field == "within" { Preset::San } else { Preset::None }
}

/// Returns the preset of a class of links that is not described.
fn default(field: &str) -> Preset {
    if field == "within" { Preset::San } else { Preset::Wan }
}

fn latency_of_preset(preset: Preset) -> String {
    format!("duration('{}')", Duration(preset.properties().latency))
}

/// Returns a duration. CEL cannot parse one without a unit.
fn span(text: &str) -> String {
    format!("duration({text} == '0' ? '0s' : {text})")
}

/// Rule for the resources of a pod: the number of requested cores does not exceed the limit.
pub(super) fn limit_covers_request() -> Rule {
    let cores = |field: &str| format!("quantity(string(self.{field}))");
    let message = "`cpuLimit` is less than `cpu`: raise `cpuLimit`, or reduce `cpu`";
    Rule::new(format!(
        "!has(self.cpu) || !has(self.cpuLimit) || {}.compareTo({}) <= 0",
        cores("cpu"),
        cores("cpuLimit")
    ))
    .message(message)
    .field_path(".cpuLimit")
}

/// Rule: no fault `f` satisfies `wrong`; otherwise, the message is `text` for the first fault that does.
fn of_faults(wrong: &str, text: &str) -> Rule {
    Rule::new(format!("!has(self.faults) || !self.faults.exists(f, {wrong})"))
        .message_expression(format!("self.faults.map(f, {wrong}, {text})[0]"))
        .field_path(".faults")
}

/// Rule: every key of this map in `kubernetes` is the name of a cluster.
pub(super) fn places_clusters(field: &str) -> Rule {
    let map = format!("self.kubernetes.{field}");
    let wrong = "!self.clusters.exists(c, c.name == k)";
    let message =
        format!("{map}.map(k, {wrong}, 'there is no cluster `' + k + '`: use the names in `clusters`')[0]");
    Rule::new(format!("!has(self.kubernetes) || !has({map}) || !{map}.exists(k, {wrong})"))
        .message_expression(message)
        .field_path(format!(".kubernetes.{field}"))
}

/// Rule: an optional field of this type does not change.
pub(super) fn stays<T: JsonSchema>(field: &str) -> Rule {
    let (new, old) = (format!("self.{field}"), format!("oldSelf.{field}"));
    unless_same(field, &if_both(&new, &old, &same(&schema::<T>(), &new, &old)))
}

/// Rule: a required field of this type does not change.
pub(super) fn stays_required<T: JsonSchema>(field: &str) -> Rule {
    unless_same(field, &same(&schema::<T>(), &format!("self.{field}"), &format!("oldSelf.{field}")))
}

/// Rule: the clusters do not change, and neither does their order, which numbers the processes.
///
/// API servers ignore the order when they compare two whole lists of type `map`, so this rule compares the entries.
pub(super) fn clusters_stay() -> Rule {
    const { assert!(MAX_CLUSTERS == 16 * 16) };
    let is_same = "h + l >= self.clusters.size() || self.clusters[h + l] == oldSelf.clusters[h + l]";
    unless_same(
        "clusters",
        &format!("self.clusters.size() == oldSelf.clusters.size() && {}", at_every_index(is_same)),
    )
}

/// Says that a field is fixed. A federation exists until its deletion is complete, even after its run.
pub(crate) const CANNOT_CHANGE: &str = "cannot change while the federation exists";
/// Says how to change a federation.
pub(crate) const CHANGE_HELP: &str = "change only `links`, `faults` or `pause`; for any other change, delete the federation, wait until it is gone, and \
     apply it again";

fn unless_same(field: &str, is_same: &str) -> Rule {
    let message = format!("`{field}` {CANNOT_CHANGE}: {CHANGE_HELP}");
    Rule::new(is_same).message(message).field_path(format!(".{field}"))
}

/// Rule: faults are only added or removed at the end of the list, and added faults have neither `mtbf` nor `trace`, because
/// their times are counted from the start of the application. Faults that the run refused can be removed.
///
/// This rule cannot tell whether the run has accepted a fault, because the stored spec contains accepted and refused
/// faults alike. The run itself checks that. Existing faults must be written exactly as before: comparing the meaning of
/// their quantities would make this by far the longest rule.
pub(super) fn faults_are_added() -> Rule {
    const { assert!(MAX_FAULTS == 16 * 16) };
    let rule = format!(
        "!has(oldSelf.faults) ? !has(self.faults) || !self.faults.exists(f, has(f.mtbf) || has(f.trace)) : !has(self.faults) || {}",
        at_every_index(
            "h + l >= self.faults.size() || (h + l < oldSelf.faults.size() \
             ? self.faults[h + l] == oldSelf.faults[h + l] \
             : !has(self.faults[h + l].mtbf) && !has(self.faults[h + l].trace))"
        ),
    );
    let message = "the faults of a running federation cannot change: add faults with `at` or `when` at the end of the list, \
                   or remove faults that were refused";
    Rule::new(rule).message(message).field_path(".faults")
}

/// Returns an expression that checks `condition` for each index from 0 to 255. CEL has no ranges, so `condition` writes
/// the index as `h + l`: a multiple of 16 plus a remainder.
fn at_every_index(condition: &str) -> String {
    let numbers = |step: usize| (0..16).map(|it| (it * step).to_string()).collect::<Vec<_>>().join(", ");
    format!("[{}].all(h, [{}].all(l, {condition}))", numbers(16), numbers(1))
}

/// Returns the schema of a type, with all subschemas inlined.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|it| it.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// How two texts of a quantity are compared.
#[derive(Clone, Copy)]
enum Notation {
    /// A duration, or a word such as `never`.
    Duration,
    /// A size. Only the letter `B` is optional.
    Size,
    /// A number of cores.
    Cores,
}

impl Notation {
    /// Returns how quantities of this schema are compared; `None` if they must have the same text.
    fn of(schema: &Value) -> Option<Notation> {
        let is = |quantity: Value| schema["pattern"].is_string() && schema["pattern"] == quantity["pattern"];
        if is(self::schema::<Duration>()) || is(self::schema::<Period>()) {
            Some(Notation::Duration)
        } else if is(self::schema::<Size>()) {
            Some(Notation::Size)
        } else if is(self::schema::<Cores>()) {
            Some(Notation::Cores)
        } else {
            None
        }
    }

    /// Returns the expression that is true if the two quantities are equal.
    fn same(self, new: &str, old: &str) -> String {
        match self {
            Notation::Duration => format!(
                "({new} == {old} || !({new} in {WORDS:?}) && !({old} in {WORDS:?}) && duration({new}) == duration({old}))"
            )
            .replace('"', "'"),
            Notation::Size => format!("{new}.replace('B', '') == {old}.replace('B', '')"),
            Notation::Cores => {
                format!("quantity(string({new})).compareTo(quantity(string({old}))) == 0")
            }
        }
    }

    /// Returns the value of the expression from [`Notation::same`] for these values.
    fn is_same(self, new: &Value, old: &Value) -> bool {
        let text = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
        let texts = [text(new), text(old)];
        let [new, old] = &texts;
        match self {
            Notation::Duration => {
                let is_word = texts.iter().any(|it| WORDS.contains(&it.as_str()));
                new == old || !is_word && new.parse::<Duration>() == old.parse::<Duration>()
            }
            Notation::Size => new.replace('B', "") == old.replace('B', ""),
            Notation::Cores => new.parse::<Cores>() == old.parse::<Cores>(),
        }
    }
}

/// Values of a duration that CEL cannot parse.
const WORDS: [&str; 3] = ["0", "never", "infinite"];

/// The field whose quantities must have the same text. Otherwise, the rule for the application would be several times as
/// long.
const TEXTUAL: &str = "system";

/// Returns the expression that is true if two values of this schema are equal. Durations and numbers of cores
/// are equal if they have the same value, such as `1m` and `60s`. Sizes are equal if they differ at most in
/// the letter `B`, such as `64KiB` and `64Ki`. All other quantities, and those in lists and maps, must have
/// the same text.
fn same(schema: &Value, new: &str, old: &str) -> String {
    if let Some(notation) = Notation::of(schema) {
        return notation.same(new, old);
    }
    let fields = fields(schema);
    if !fields.iter().any(|(name, it, _)| *name != TEXTUAL && has_quantity(it)) {
        return format!("{new} == {old}");
    }
    let each = fields.iter().map(|(name, schema, is_required)| {
        let (new, old) = (format!("{new}.{name}"), format!("{old}.{name}"));
        let equal = if *name == TEXTUAL { format!("{new} == {old}") } else { same(schema, &new, &old) };
        if *is_required { equal } else { format!("({})", if_both(&new, &old, &equal)) }
    });
    format!("({})", each.collect::<Vec<_>>().join(" && "))
}

/// Returns the path of the first value for which the expression from [`same`] is false; `None` if it is true. `path` is
/// the path of the two values, as they are [stored](stored).
fn difference(schema: &Value, path: String, new: &Value, old: &Value) -> Option<String> {
    let is_same = match Notation::of(schema) {
        Some(notation) => notation.is_same(new, old),
        // Not a quantity itself, but it contains one.
        None if has_quantity(schema) => {
            let names = fields(schema).into_iter().map(|(name, ..)| name);
            return difference_of_fields(schema, &path, names, new, old);
        }
        None => new == old,
    };
    (!is_same).then_some(path)
}

/// Returns the path of the first of these fields that is in only one of the two objects, or that the rules consider
/// changed.
pub(crate) fn difference_of_fields<'a>(
    schema: &Value,
    path: &str,
    names: impl IntoIterator<Item = &'a str>,
    new: &Value,
    old: &Value,
) -> Option<String> {
    names.into_iter().find_map(|name| {
        let path = format!("{path}.{name}");
        match (new.get(name), old.get(name)) {
            (None, None) => None,
            (Some(new), Some(old)) if name == TEXTUAL => (new != old).then_some(path),
            (Some(new), Some(old)) => difference(&schema["properties"][name], path, new, old),
            _ => Some(path),
        }
    })
}

/// Returns a value in the form in which API servers store it: without `null`, and with defaults. `schema` is its schema
/// in the definition.
pub(crate) fn stored(schema: &Value, value: &Value) -> Value {
    match value {
        Value::Object(all) => {
            let of = |name: &str| match &schema["properties"][name] {
                Value::Null => &schema["additionalProperties"],
                known => known,
            };
            let given = all.iter().filter(|(_, it)| !it.is_null());
            let mut all: Map<String, Value> =
                given.map(|(name, it)| (name.clone(), stored(of(name), it))).collect();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default") {
                    all.entry(name.clone()).or_insert_with(|| default.clone());
                }
            }
            Value::Object(all)
        }
        Value::Array(all) => all.iter().map(|it| stored(&schema["items"], it)).collect(),
        // CEL compares these numbers as such: 1 equals 1.0.
        Value::Number(it) if schema["type"] == "number" => it.as_f64().into(),
        other => other.clone(),
    }
}

/// Returns the expression that is true if an optional field is absent from both values, or present in both and `equal`
/// holds.
fn if_both(new: &str, old: &str, equal: &str) -> String {
    format!("has({new}) == has({old}) && (!has({new}) || {equal})")
}

/// Returns the fields of an object with their names, and whether they are required. An enum has a field for each
/// variant.
fn fields(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|it| it.iter().any(|it| it.as_str() == Some(name)))
    };
    let own = schema["properties"].as_object().into_iter().flatten();
    let own = own.map(|(name, it)| (name.as_str(), it, is_required(name)));
    let alternatives =
        ["oneOf", "anyOf"].into_iter().flat_map(|it| schema[it].as_array().into_iter().flatten());
    let of_alternatives =
        alternatives.flat_map(|it| fields(it).into_iter().map(|(name, it, _)| (name, it, false)));
    own.chain(of_alternatives).collect()
}

/// Returns whether a value of this schema can be written in several ways.
fn has_quantity(schema: &Value) -> bool {
    Notation::of(schema).is_some()
        || fields(schema).iter().any(|(name, it, _)| *name != TEXTUAL && has_quantity(it))
}
