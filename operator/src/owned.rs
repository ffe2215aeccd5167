//! Objects that belong to a federation.

use faultline_client::object::FederationObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

use crate::naming;

/// Creates an object with this name that belongs to the federation, and is deleted with it.
pub(crate) fn owned<K>(federation: &FederationObject, name: String) -> K
where
    K: Resource<DynamicType = ()> + Default,
{
    let mut object = K::default();
    let metadata = object.meta_mut();
    metadata.name = Some(name);
    metadata.namespace = federation.namespace();
    metadata.labels = Some(naming::labels(federation));
    // The finalizer already delays the deletion of the federation, so objects need not block the deletion, and the
    // operator needs no permission to make them do so.
    let owner =
        federation.controller_owner_ref(&()).map(|it| OwnerReference { block_owner_deletion: None, ..it });
    metadata.owner_references = Some(owner.into_iter().collect());
    object
}
