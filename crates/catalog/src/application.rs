//! Translates the application's options into its configuration.

use crate::{SetupError, custom, program};
use faultline_api::resource::{self, ApplicationSpec, FederationSpec, NasPattern, Receive};
use faultline_core::Span;
use faultline_workloads::{Config, exchange, farm, heat, nas, pingpong, salted, synthetic};

/// Returns the parameters of an application that exchanges messages, in a run with this seed.
///
/// # Errors
///
/// Fails for a task-based program, and for a custom application that this program does not contain or whose parameters
/// are invalid.
pub(crate) fn config(spec: &FederationSpec, seed: u64) -> Result<Config, SetupError> {
    Ok(match &spec.application {
        ApplicationSpec::Heat(it) => Config::Heat(heat::Config {
            rows: it.rows(),
            columns: it.columns(),
            steps: it.steps(),
            step_cost: it.step_time(),
            feedback_every: it.feedback_every(),
            state_bytes: it.state(),
            virtual_state: false,
        }),
        ApplicationSpec::Synthetic(it) => Config::Synthetic(synthetic::Config {
            traffic: traffic(spec, &it.traffic),
            message_bytes: it.message() as u32,
            state_bytes: it.state(),
            terms: terms(spec),
        }),
        ApplicationSpec::Exchange(it) => Config::Exchange(exchange::Config {
            pattern: it.pattern().into(),
            exchanges: it.exchanges(),
            step_cost: it.step_time(),
            classes: it.receive().into_iter().map(class).collect(),
        }),
        ApplicationSpec::Nas(it) => Config::Nas(nas::Config {
            pattern: pattern(it.pattern),
            iterations: it.iterations(),
            iteration_cost: it.step_time(),
            message_bytes: it.message() as u32,
            state_bytes: it.state(),
            order: it.order.clone().unwrap_or_default(),
        }),
        ApplicationSpec::PingPong(it) => Config::PingPong(pingpong::Config {
            sizes: it.sizes().into_iter().map(|it| it as u32).collect(),
            rounds: it.rounds(),
        }),
        ApplicationSpec::Farm(it) => {
            Config::Farm(farm::Config { pieces: it.pieces(), piece_cost: it.step_time() })
        }
        ApplicationSpec::Salted(it) => Config::Salted(salted::Config {
            steps: it.steps(),
            step_cost: it.step_time(),
            fan_out: it.fan_out(),
            between: it.between(),
            reply: it.reply(),
            reply_depth: it.reply_depth() as u8,
        }),
        ApplicationSpec::Fibonacci(_)
        | ApplicationSpec::NQueens(_)
        | ApplicationSpec::Qap(_)
        | ApplicationSpec::TaskGraph(_)
        | ApplicationSpec::Jacobi(_)
        | ApplicationSpec::Cloth(_) => return Err(SetupError::Tasks),
        ApplicationSpec::Custom(it) => {
            let custom =
                custom::application(it, spec).ok_or_else(|| SetupError::unknown("application", it))?;
            Config::Custom(custom.map_err(|it| SetupError::unsuitable("application", it))?)
        }
        ApplicationSpec::Program(it) => Config::Custom(program::application(it, spec, seed)),
        ApplicationSpec::System(_) => return Err(SetupError::System),
    })
}

/// Returns the period during which each cluster takes part in the program; an empty list if all clusters take part
/// throughout.
fn terms(spec: &FederationSpec) -> Vec<synthetic::Term> {
    let term = |cluster: &resource::ClusterSpec| synthetic::Term {
        joins: cluster.joins_after.map_or(Span::ZERO, |it| it.0),
        leaves: cluster.leaves_after.map(|it| it.0),
    };
    let all_stay = spec.clusters.iter().all(resource::ClusterSpec::is_permanent);
    if all_stay { Vec::new() } else { spec.clusters.iter().map(term).collect() }
}

fn class(receive: Receive) -> exchange::Class {
    match receive {
        Receive::Named => exchange::Class::Named,
        Receive::Gathered => exchange::Class::Gathered,
        Receive::Polled => exchange::Class::Polled,
    }
}

fn pattern(pattern: NasPattern) -> nas::Pattern {
    match pattern {
        NasPattern::Bt => nas::Pattern::Bt,
        NasPattern::Cg => nas::Pattern::Cg,
        NasPattern::Ft => nas::Pattern::Ft,
        NasPattern::Lu => nas::Pattern::Lu,
        NasPattern::Mg => nas::Pattern::Mg,
        NasPattern::Sp => nas::Pattern::Sp,
    }
}

/// Translates lists of named clusters into tables with an entry for each cluster. Clusters that are not
/// listed send no messages.
fn traffic(spec: &FederationSpec, traffic: &resource::Traffic) -> synthetic::Traffic {
    let clusters = || spec.clusters.iter().map(|it| &it.name);
    match traffic {
        resource::Traffic::Random(it) => {
            let behaviour = |name: &String| {
                let entry = it.clusters.iter().find(|entry| entry.cluster == *name);
                let probability = |to: &String| {
                    let sends = entry.map_or(&[][..], |entry| &entry.send);
                    sends.iter().find(|send| send.to == *to).map_or(0.0, |send| send.probability)
                };
                synthetic::Behaviour {
                    mean_computation: entry.map_or(idle(it.duration.0), |entry| entry.mean_computation.0),
                    send: clusters().map(probability).collect(),
                }
            };
            synthetic::Traffic::Random { total: it.duration.0, clusters: clusters().map(behaviour).collect() }
        }
        resource::Traffic::Exact(it) => {
            let count = |from: &String, to: &String| {
                let entry = it.messages.iter().find(|entry| entry.from == *from && entry.to == *to);
                entry.map_or(0, |entry| u64::from(entry.count))
            };
            synthetic::Traffic::Exact {
                total: it.duration.0,
                messages: clusters().map(|from| clusters().map(|to| count(from, to)).collect()).collect(),
            }
        }
        resource::Traffic::Burst(it) => synthetic::Traffic::Burst {
            messages: it.messages.into(),
            batch: it.batch(),
            cost: it.computation(),
            between: it.between(),
            receivers: it.receivers,
        },
    }
}

/// Returns the mean duration of a computation in a cluster that is not listed and therefore never sends.
fn idle(duration: Span) -> Span {
    Span((duration.0 / 10).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_of(application: &str, clusters: &str) -> Config {
        let text = format!(
            "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: test }}
spec:
  clusters: {clusters}
  protocol: {{ none: {{}} }}
  application: {application}
  deadline: 20h
"
        );
        let federation = faultline_api::parse("test.yaml", text.as_bytes());
        config(&federation.unwrap_or_else(|it| panic!("{it}: {:?}", it.errors())).spec, 1).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_applications() {
        let clusters = "[{ name: a, nodes: 2 }]";
        assert_eq!(config_of("{ heat: {} }", clusters), Config::Heat(heat::Config::default()));
        assert_eq!(config_of("{ exchange: {} }", clusters), Config::Exchange(exchange::Config::default()));
        assert_eq!(config_of("{ pingPong: {} }", clusters), Config::PingPong(pingpong::Config::default()));
        assert_eq!(config_of("{ farm: {} }", clusters), Config::Farm(farm::Config::default()));
        let sixteen = "[{ name: a, nodes: 16 }]";
        assert_eq!(config_of("{ nas: { pattern: cg } }", sixteen), Config::Nas(nas::Config::default()));
        assert_eq!(config_of("{ salted: {} }", clusters), Config::Salted(salted::Config::default()));
    }

    #[test]
    fn lists_by_name_become_tables_by_cluster() {
        let clusters = "[{ name: a, nodes: 2 }, { name: b, nodes: 1 }]";
        let exact = "{ synthetic: { traffic: { exact: { duration: 1h, messages: [
            { from: b, to: a, count: 7 }, { from: a, to: a, count: 3 } ] } } } }";
        let Config::Synthetic(config) = config_of(exact, clusters) else { panic!("it is synthetic") };
        let messages = vec![vec![3, 0], vec![7, 0]];
        assert_eq!(config.traffic, synthetic::Traffic::Exact { total: Span::from_secs(3600), messages });
        assert_eq!((config.message_bytes, config.state_bytes), (1_000, 1_000_000));

        let random = "{ synthetic: { traffic: { random: { duration: 1h, clusters: [
            { cluster: b, meanComputation: 5s, send: [{ to: a, probability: 0.25 }] } ] } } } }";
        let Config::Synthetic(config) = config_of(random, clusters) else { panic!("it is synthetic") };
        let synthetic::Traffic::Random { clusters, .. } = &config.traffic else { panic!("it is random") };
        assert_eq!(clusters[0].send, [0.0, 0.0]);
        assert_eq!(clusters[1].send, [0.25, 0.0]);
        assert_eq!(clusters[1].mean_computation, Span::from_secs(5));
    }
}
