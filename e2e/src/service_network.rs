//! The services of a cluster as its Kubernetes nodes know them. On some kernels, kube-proxy in nftables mode loses the
//! map from services to their endpoints, and does not detect the loss. Connections to services then fail, such as the
//! operator's connections to the API server. This is a defect of the cluster, not of the software that the scenarios
//! test.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use crate::{Failure, Machine};

/// A command that fails if kube-proxy does not use nftables.
const USES_NFTABLES: &str = "nft list tables | grep -q -x 'table ip kube-proxy'";
/// A command that lists the maps of services with and without endpoints. It prints nothing about a map that does not
/// exist.
const LIST: &str =
    "for map in service-ips no-endpoint-services; do nft list map ip kube-proxy $map; done 2>/dev/null; true";
const PROXIES: &str = "k8s-app=kube-proxy";
/// Time within which kube-proxy must know all services, initially and after its restart. It may be busy with
/// a change.
const SYNCED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Checks the nodes, and counts how often services were missing.
pub struct ServiceNetwork {
    client: Client,
    lost: BTreeMap<String, u32>,
}

impl ServiceNetwork {
    /// Returns the network of a cluster.
    pub fn new(client: Client) -> ServiceNetwork {
        ServiceNetwork { client, lost: BTreeMap::new() }
    }

    /// Restarts kube-proxy on each node where a service is missing. Nodes that are not containers on this machine, or
    /// whose kube-proxy does not use nftables, are not checked.
    ///
    /// # Errors
    ///
    /// Fails if the API server does not respond, or if a service is still missing after the restart.
    pub async fn repair(&mut self) -> Result<(), Failure> {
        for node in Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await? {
            let name = node.name_any();
            let Ok(machine) = Machine::find(&self.client, &name).await else { continue };
            if machine.run(USES_NFTABLES).await.is_err() {
                continue;
            }
            let [at_first, after_restart] = SYNCED;
            let Some(missing) = self.missing(&machine, at_first).await? else { continue };
            println!("!!! kube-proxy on {name} has lost the service{missing}: restarting it");
            *self.lost.entry(name.clone()).or_default() += 1;
            self.restart_proxy(&name).await?;
            if let Some(missing) = self.missing(&machine, after_restart).await? {
                return Err(format!("kube-proxy on {name} does not restore the service{missing}").into());
            }
        }
        Ok(())
    }

    /// Returns how often kube-proxy has been restarted, on all nodes.
    pub fn repairs(&self) -> u32 {
        self.lost.values().sum()
    }

    /// Returns how often kube-proxy had lost services, by node; `None` if it never did.
    pub fn summary(&self) -> Option<String> {
        let of_node = |(node, times): (&String, &u32)| format!("{node}: {times}");
        (!self.lost.is_empty()).then(|| self.lost.iter().map(of_node).collect::<Vec<_>>().join(", "))
    }

    /// Returns a service that a node still does not know after this time.
    async fn missing(&self, machine: &Machine, within: Duration) -> Result<Option<String>, Failure> {
        let begun = Instant::now();
        loop {
            let services = Api::<Service>::all(self.client.clone()).list(&ListParams::default()).await?.items;
            let known = machine.run(LIST).await?;
            let missing = services.iter().flat_map(keys).find(|key| !known.contains(key.as_str()));
            if missing.is_none() || begun.elapsed() > within {
                return Ok(missing);
            }
            sleep(CHECK_EVERY).await;
        }
    }

    async fn restart_proxy(&self, node: &str) -> Result<(), Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "kube-system");
        let on_node = ListParams::default().labels(PROXIES).fields(&format!("spec.nodeName={node}"));
        for pod in pods.list_metadata(&on_node).await? {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// Returns the keys of a service in the maps. A key consists of an address, a protocol and a port, with a space before
/// and after it.
fn keys(service: &Service) -> Vec<String> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let address = spec.cluster_ip.as_deref().filter(|it| it.contains('.'));
    let ports = spec.ports.iter().flatten();
    let key = |address: &str, protocol: Option<&str>, port: i32| {
        format!(" {address} . {} . {port} ", protocol.unwrap_or("TCP").to_lowercase())
    };
    address
        .map_or_else(Vec::new, |it| ports.map(|port| key(it, port.protocol.as_deref(), port.port)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_with_addresses_have_a_key_for_each_port() {
        let service = |spec| serde_json::from_value::<Service>(json!({ "spec": spec })).unwrap();
        let dns = service(json!({
            "clusterIP": "10.96.0.10",
            "ports": [{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }],
        }));
        assert_eq!(keys(&dns), [" 10.96.0.10 . udp . 53 ", " 10.96.0.10 . tcp . 53 "]);
        assert_eq!(keys(&service(json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }))), [""; 0]);
        assert_eq!(keys(&service(json!({ "clusterIP": "fd00::1", "ports": [{ "port": 80 }] }))), [""; 0]);
    }
}
