//! Federations whose specs this program may be unable to read.
//!
//! The API server admits quantities beyond their limits, such as `loss: 60%`. A run that has begun continues without
//! such a change, so its status, its pods and its record can still be used.

use faultline_api::FederationSpec;
use kube::core::ApiResource;
use kube::core::object::Object;
use serde_json::Value;

use crate::object::FederationObject;
use crate::status::FederationStatus;

/// A federation with its spec as the API server stores it.
pub type Outline = Object<Value, FederationStatus>;

/// Returns the resource with which to request outlines from the API server.
pub fn resource() -> ApiResource {
    ApiResource::erase::<FederationObject>(&())
}

/// Returns the spec; `None` if this program cannot read it.
pub fn spec(federation: &Outline) -> Option<FederationSpec> {
    serde_json::from_value(federation.spec.clone()).ok()
}
