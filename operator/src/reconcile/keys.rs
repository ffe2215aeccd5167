//! The key of a federation: created once, read when needed, and never replaced while pods depend on it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use faultline_api::supervision::{InvalidKey, KEY_DIGITS, process_key, reader_token};
use faultline_client::api_error::described;
use faultline_client::object::FederationObject;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use thiserror::Error;

use super::freeze::Frozen;
use crate::context::Context;
use crate::federation_cache::KnownKey;
use crate::owned::owned;
use crate::{naming, object_cache};

/// Time for which a key that was read is assumed to exist.
const FRESH: Duration = Duration::from_secs(30);
/// Name of the entry in the secret.
const ENTRY: &str = "key";

/// The reason why there is no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The API server did not return the secret.
    #[error("cannot read the secret {0}: {why}", why = described(.1))]
    Read(String, #[source] kube::Error),
    /// The operator lacks permission to read the secret.
    #[error(
        "the operator is not permitted to read the secret {0} in the namespace {1}: grant it this permission; if the \
         chart's value `rbac.secretNamespaces` is not empty, add the namespace"
    )]
    Forbidden(String, String),
    /// The secret cannot be created.
    #[error("cannot create the secret {0}: {why}", why = described(.1))]
    Make(String, #[source] kube::Error),
    /// The operating system provided no random bytes for a new key.
    #[error("cannot generate random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// A secret with the key's name exists, but the federation does not control it.
    #[error(
        "the secret {0} already exists, but does not belong to this federation; delete it, or rename the federation"
    )]
    Foreign(String),
    /// The secret was deleted, and the pods still depend on it.
    #[error(
        "the secret {0}, which the pods of the federation use, was deleted; restore it unchanged, with the \
         federation as its controller, or delete the federation and apply it again"
    )]
    Gone(String),
    /// The secret no longer contains the same key.
    #[error(
        "the key in the secret {0} is not the one that the pods of the federation use; restore the original key, or \
         delete the federation and apply it again"
    )]
    Replaced(String),
    /// The secret contains no valid key.
    #[error(
        "the secret {0} does not contain the key of a federation; delete the federation and apply it again"
    )]
    Invalid(String),
}

impl KeyError {
    /// Returns the reason in one word, for the status.
    pub fn reason(&self) -> &'static str {
        match self {
            KeyError::Foreign(_) => "NameTaken",
            KeyError::Gone(_) => "KeyGone",
            KeyError::Replaced(_) => "KeyReplaced",
            KeyError::Invalid(_) => "KeyInvalid",
            KeyError::Read(..) | KeyError::Forbidden(..) | KeyError::Make(..) | KeyError::Random(_) => {
                "KeyUnreadable"
            }
        }
    }

    /// Returns whether only a user can solve the problem.
    pub fn is_lasting(&self) -> bool {
        !matches!(
            self,
            KeyError::Read(..) | KeyError::Forbidden(..) | KeyError::Make(..) | KeyError::Random(_)
        )
    }
}

/// Returns the key of a federation. If the secret does not exist and this operator still knows the key, restores the
/// secret. If it does not know the key, creates a new one, unless `in_use` says that pods already depend on the lost
/// key.
///
/// # Errors
///
/// Fails if a request to the API server fails, if the secret belongs to another owner or contains no valid key, or if
/// the key was replaced, or deleted while pods depend on it.
pub async fn find(
    federation: &FederationObject,
    in_use: bool,
    context: &Context,
) -> Result<String, KeyError> {
    let known = context.cache(federation, |it| it.key.clone());
    if let Some(KnownKey { key, .. }) =
        known.as_ref().filter(|it| it.at.is_some_and(|at| at.elapsed() < FRESH))
    {
        return Ok(key.clone());
    }
    let name = naming::key(federation);
    let secrets = context.api::<Secret>(federation);
    let there = secrets.get_opt(&name).await.map_err(|it| match it {
        kube::Error::Api(status) if status.is_forbidden() => {
            KeyError::Forbidden(name.clone(), federation.namespace().unwrap_or_default())
        }
        error => KeyError::Read(name.clone(), error),
    })?;
    let key = match (there, known) {
        (Some(secret), known) => {
            if !object_cache::belongs(&secret, federation) {
                return Err(KeyError::Foreign(name));
            }
            let key = secret.data.unwrap_or_default().remove(ENTRY).unwrap_or_default();
            let key = String::from_utf8_lossy(&key.0).into_owned();
            process_key(&key, "").map_err(|InvalidKey| KeyError::Invalid(name.clone()))?;
            if known.is_some_and(|known| known.key != key) {
                return Err(KeyError::Replaced(name));
            }
            key
        }
        (None, Some(KnownKey { key, .. })) => {
            tracing::warn!(federation = federation.name_any(), name, "the key was deleted; restoring it");
            make(&secrets, federation, name, key).await?
        }
        (None, None) if in_use => return Err(KeyError::Gone(name)),
        (None, None) => make(&secrets, federation, name, random()?).await?,
    };
    context.cache(federation, |it| it.key = Some(KnownKey { key: key.clone(), at: Some(Instant::now()) }));
    Ok(key)
}

async fn make(
    secrets: &Api<Secret>,
    federation: &FederationObject,
    name: String,
    key: String,
) -> Result<String, KeyError> {
    let mut secret: Secret = owned(federation, name.clone());
    secret.immutable = Some(true);
    secret.string_data = Some([(ENTRY.to_owned(), key.clone())].into());
    // If another operator creates the secret at the same time, the next reconciliation finds its key.
    secrets.create(&PostParams::default(), &secret).await.map_err(|it| KeyError::Make(name, it))?;
    Ok(key)
}

fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; KEY_DIGITS / 2];
    getrandom::fill(&mut bytes)?;
    let mut key = String::with_capacity(KEY_DIGITS);
    for byte in bytes {
        write!(key, "{byte:02x}").expect("writing to a string never fails");
    }
    Ok(key)
}

/// Returns the keys of all processes, by pod. The container of each pod mounts only its own.
///
/// # Errors
///
/// Fails if the federation's key is malformed.
pub fn of_processes(frozen: &Frozen, key: &str) -> Result<Secret, KeyError> {
    let federation = &*frozen.federation;
    let mut secret: Secret = owned(federation, naming::process_keys(federation));
    let mut keys = BTreeMap::new();
    for group in &frozen.groups {
        let set = naming::set(federation, &group.name);
        for node in 0..group.nodes {
            let drawn = process_key(key, &group.process(node));
            let drawn = drawn.map_err(|InvalidKey| KeyError::Invalid(naming::key(federation)))?;
            keys.insert(format!("{set}-{node}"), ByteString(drawn.into_bytes()));
        }
    }
    secret.data = Some(keys);
    Ok(secret)
}

/// Returns the token for reading the federation's status and record.
///
/// # Errors
///
/// Fails if the federation's key is malformed.
pub fn of_reader(federation: &FederationObject, key: &str) -> Result<Secret, KeyError> {
    let mut secret: Secret = owned(federation, naming::reader(federation));
    let token = reader_token(key).map_err(|InvalidKey| KeyError::Invalid(naming::key(federation)))?;
    secret.data = Some([(naming::READER_TOKEN.to_owned(), ByteString(token.into_bytes()))].into());
    Ok(secret)
}
