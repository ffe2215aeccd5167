//! Freezes a federation: validates it once, and stores it in an immutable ConfigMap.
//!
//! All objects of the federation are built from the frozen text, and the supervisor starts with it. Later changes to
//! the resource are only [followed](super::follow).

use std::sync::Arc;

use faultline_api::FederationSpec;
use faultline_api::names::Names;
use faultline_client::api_error::described;
use faultline_client::object::FederationObject;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

use super::objects::{ApplyError, Obstacle, make_object};
use super::validate;
use crate::cached_federation::{CachedFederation, read_spec};
use crate::context::Context;
use crate::owned::owned;
use crate::{naming, object_cache};

/// Name of the federation's file in its ConfigMap.
const FILE: &str = "federation.yaml";

/// A federation as it was frozen.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// The resource, with the frozen spec instead of its own.
    pub federation: Arc<FederationObject>,
    /// The processes of the federation. Each group has its own StatefulSet.
    pub groups: Vec<Group>,
    /// The reason why the text could not be stored, if a user must act. Nothing is built from a text that is not stored.
    pub obstacle: Option<Obstacle>,
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

impl Group {
    /// Returns the name of the process on one of the group's nodes.
    pub fn process(&self, node: u32) -> String {
        if self.is_cluster { format!("{}-{node}", self.name) } else { self.name.clone() }
    }
}

impl Frozen {
    /// Returns the frozen form of a federation, which need not be valid.
    pub fn of(federation: FederationObject) -> Frozen {
        let clusters = federation.spec.clusters.iter();
        let mut groups: Vec<Group> =
            clusters.map(|it| Group { name: it.name.clone(), nodes: it.nodes, is_cluster: true }).collect();
        let names = Names::of(&federation.spec);
        groups.extend(names.extra().iter().map(|it| Group { name: it.clone(), nodes: 1, is_cluster: false }));
        Frozen { federation: Arc::new(federation), groups, obstacle: None }
    }

    /// Returns the number of pods that run processes.
    pub fn nodes(&self) -> u32 {
        self.groups.iter().map(|it| it.nodes).sum()
    }

    /// Returns the names of all sets, with their numbers of pods.
    pub fn sets(&self) -> impl Iterator<Item = (String, u32)> {
        let groups = self.groups.iter().map(|it| (naming::set(&*self.federation, &it.name), it.nodes));
        groups.chain([(naming::supervisor(&*self.federation), 1)])
    }

    /// Returns the names of all pods, by set.
    pub fn pod_names(&self) -> impl Iterator<Item = (String, String)> {
        self.sets().flat_map(|(set, pods)| (0..pods).map(move |it| (set.clone(), format!("{set}-{it}"))))
    }
}

/// The reason why a federation is not frozen, if a user cannot change it by changing the federation.
#[derive(Debug, Error)]
pub enum FreezeError {
    /// The API server did not return the ConfigMap.
    #[error(
        "cannot read the ConfigMap {0}, which contains the federation as it was applied: {why}",
        why = described(.1)
    )]
    Read(String, #[source] kube::Error),
    /// The ConfigMap does not contain the federation from which the pods were created.
    #[error(
        "the ConfigMap {0} was replaced, and does not contain the federation as it was applied: {1}; restore the \
         ConfigMap, or delete the federation and apply it again"
    )]
    Replaced(String, String),
    /// The run has begun, but neither its ConfigMap nor a readable spec exists.
    #[error(
        "the operator cannot read this federation, and leaves its objects unchanged: {0}; correct the federation, or \
         delete it"
    )]
    Unreadable(String),
    /// The run has begun, but this operator does not permit an image of its.
    #[error("{0}")]
    ImageNotAllowed(String),
    /// The ConfigMap could not be created.
    #[error(transparent)]
    Make(#[from] ApplyError),
}

/// Returns the federation as it was frozen, or freezes it now. If it cannot be run, returns the reason instead.
///
/// The limit on pods and all other rules apply only until the run has begun: another operator may have other rules.
///
/// # Errors
///
/// Fails if a request to the API server fails, or if there is no usable text of a run that has begun.
pub async fn freeze(
    federation: &CachedFederation,
    context: &Context,
) -> Result<Result<Frozen, Obstacle>, FreezeError> {
    let is_known = context.cache(federation, |it| it.frozen.is_some());
    let stored = look_up(federation, context).await?;
    let is_stored = stored.is_some();
    let spec = match stored.map_or_else(|| federation.spec(), Ok) {
        Ok(spec) => spec,
        Err(error) if federation.has_begun() => return Err(FreezeError::Unreadable(error)),
        Err(error) => return Ok(Err(invalid(error))),
    };
    // Users of the namespace can replace the ConfigMap, so this is checked every time.
    if let Err(message) = validate::images_are_allowed(&spec, &context.settings.allow_images) {
        return match federation.has_begun() {
            true => Err(FreezeError::ImageNotAllowed(message)),
            false => Ok(Err(Obstacle { reason: "ImageNotAllowed", message })),
        };
    }
    if !is_known
        && !federation.has_begun()
        && let Err(refusal) = fits_and_is_valid(federation, &spec, context.settings.max_pods)
    {
        return Ok(Err(invalid(refusal)));
    }
    let mut frozen = Frozen::of(federation.with(spec));
    // After a run has begun, a missing ConfigMap is restored together with other objects.
    if !is_stored && !federation.has_begun() {
        frozen.obstacle = make_object(&frozen.federation, &file(&frozen.federation), context).await?;
    }
    if frozen.obstacle.is_none() && !is_known {
        context.cache(federation, |it| it.frozen = Some(text(&frozen.federation.spec)));
    }
    Ok(Ok(frozen))
}

fn invalid(message: String) -> Obstacle {
    Obstacle { reason: "Invalid", message }
}

fn text(spec: &FederationSpec) -> Box<RawValue> {
    to_raw_value(spec).expect("a spec serialises")
}

/// Returns the spec that was frozen earlier, if there is one.
///
/// # Errors
///
/// Fails if the ConfigMap cannot be read or was replaced, as users of the namespace can do.
pub async fn look_up(
    federation: &CachedFederation,
    context: &Context,
) -> Result<Option<FederationSpec>, FreezeError> {
    let name = naming::file(federation);
    if let Some(known) = context.cache(federation, |it| it.frozen.clone()) {
        let spec = serde_json::from_str(known.get());
        return spec.map(Some).map_err(|it| FreezeError::Replaced(name, it.to_string()));
    }
    let files = context.api::<ConfigMap>(federation);
    let file = files.get_opt(&name).await.map_err(|it| FreezeError::Read(name.clone(), it))?;
    let Some(file) = file.filter(|it| object_cache::belongs(it, federation)) else { return Ok(None) };
    let text = file.data.and_then(|mut it| it.remove(FILE)).unwrap_or_default();
    let spec = authentic(federation, &text).map_err(|it| FreezeError::Replaced(name, it))?;
    Ok(Some(spec))
}

/// Reads the spec in the file of a federation. Returns the reason if the federation's pods were not created from it.
fn authentic(federation: &CachedFederation, file: &str) -> Result<FederationSpec, String> {
    let spec = read_spec(file)?;
    // Users of the namespace cannot write the status.
    let status = federation.status()?;
    let known: Vec<_> = status.iter().flat_map(|it| &it.clusters).map(|it| (&it.name, it.nodes)).collect();
    let stated: Vec<_> = spec.clusters.iter().map(|it| (&it.name, it.nodes)).collect();
    if !known.is_empty() && known != stated {
        return Err("its clusters are not those of the run".to_owned());
    }
    Ok(spec)
}

/// Checks whether a federation with this spec can be run by an operator that permits this many pods. Validating a
/// federation that is far too large would take long.
fn fits_and_is_valid(
    federation: &CachedFederation,
    spec: &FederationSpec,
    max_pods: u32,
) -> Result<(), String> {
    validate::fits(validate::ranks(spec), max_pods)?;
    let federation = federation.with(spec.clone());
    validate::check(&federation.to_file())?;
    validate::fits(Frozen::of(federation).nodes().into(), max_pods)
}

/// Returns the federation as the file with which the supervisor starts.
pub(super) fn file(federation: &FederationObject) -> ConfigMap {
    let text = json!({
        "apiVersion": FederationObject::api_version(&()),
        "kind": FederationObject::kind(&()),
        "metadata": { "name": federation.name_any() },
        "spec": federation.spec,
    });
    let mut file: ConfigMap = owned(federation, naming::file(federation));
    file.immutable = Some(true);
    file.data = Some([(FILE.to_owned(), format!("{text:#}\n"))].into());
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::build::tests::quickstart;
    use faultline_api::resource::{ProtocolSpec, ReplicateTo};
    use faultline_api::samples;

    #[test]
    fn clusters_and_processes_outside_them_are_groups() {
        let mut federation = quickstart();
        let names = |it: &Frozen| it.groups.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&Frozen::of(federation.clone())), ["paris", "rennes"]);
        let ProtocolSpec::Hc3i(hc3i) = &mut federation.spec.protocol else {
            panic!("the quick start runs HC3I")
        };
        hc3i.replicate_to = Some(ReplicateTo::SharedStorage);
        let frozen = Frozen::of(federation.clone());
        assert_eq!(names(&frozen), ["paris", "rennes", "storage-server"]);
        assert_eq!(frozen.groups[2].process(0), "storage-server");
        assert_eq!(frozen.groups[0].process(2), "paris-2");
        assert_eq!(frozen.nodes(), 7);
    }

    #[test]
    fn every_process_of_a_sample_has_a_pod() {
        for sample in samples::SAMPLES {
            let federation = faultline_api::parse(sample.name, sample.text.as_bytes()).expect("it is valid");
            assert_eq!(validate::check(&federation), Ok(()), "every sample can be run");
            let frozen = Frozen::of(federation.clone().into());
            let places = frozen.groups.iter().flat_map(|group| (0..group.nodes).map(|it| group.process(it)));
            let mut places: Vec<String> = places.collect();
            let mut awaited = Names::of(&federation.spec).processes();
            places.sort_unstable();
            awaited.sort_unstable();
            assert_eq!(places, awaited, "{}", sample.name);
        }
    }

    #[test]
    fn the_supervisor_can_read_the_frozen_text() {
        let text = file(&quickstart()).data.and_then(|mut it| it.remove(FILE)).expect("it has content");
        let read = faultline_api::parse(FILE, text.as_bytes()).expect("the supervisor can read it");
        assert_eq!(read.spec, quickstart().spec);
        assert_eq!(read_spec(&text), Ok(quickstart().spec));
    }
}
