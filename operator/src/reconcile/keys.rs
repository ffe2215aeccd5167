//! The key of a federation: made once, read where it is needed, and never replaced while pods have what is drawn from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_api::supervision::{KEY_DIGITS, KeyError as NoKey, process_key};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use thiserror::Error;

use super::build::owned;
use super::validate;
use crate::controller::Context;
use crate::{mirror, naming};

/// For so long a key that was read is taken for being there.
const FRESH: Duration = Duration::from_secs(30);
/// The entry of the secret.
const ENTRY: &str = "key";

/// A federation's key as it was read last.
#[derive(Clone, Debug)]
pub struct Known {
    key: String,
    /// When; `None` when it is in doubt.
    at: Option<Instant>,
}

impl Known {
    /// Has it read again before it is used.
    pub fn doubt(&mut self) {
        self.at = None;
    }
}

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The API server does not say.
    #[error("the secret {0} cannot be read: {1}")]
    Read(String, #[source] kube::Error),
    /// It cannot be made.
    #[error("the secret {0} cannot be made: {1}")]
    Make(String, #[source] kube::Error),
    /// There are no random bytes for a new one.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// There is a secret of its name that the federation does not control.
    #[error(
        "there is a Secret {0} already, and it does not belong to this federation: delete it, or give the federation \
         another name"
    )]
    Foreign(String),
    /// It was deleted, and only the pods have what was drawn from it.
    #[error(
        "the secret {0} is gone, and the pods of the federation go by what was in it; put it back as it was, with the \
         federation as its controller, or delete the federation and apply it again"
    )]
    Gone(String),
    /// It holds another key than before.
    #[error(
        "the secret {0} holds another key than the pods of the federation go by; put the first one back, or delete the \
         federation and apply it again"
    )]
    Replaced(String),
    /// It holds none.
    #[error("the secret {0} holds no key of a federation; delete the federation and apply it again")]
    Invalid(String),
}

impl KeyError {
    /// In one word, for the status.
    pub fn reason(&self) -> &'static str {
        match self {
            KeyError::Foreign(_) => "NameTaken",
            KeyError::Gone(_) => "KeyGone",
            KeyError::Replaced(_) => "KeyReplaced",
            KeyError::Invalid(_) => "KeyInvalid",
            KeyError::Read(..) | KeyError::Make(..) | KeyError::Random(_) => "KeyUnreadable",
        }
    }

    /// Whether only a person can do something about it.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, KeyError::Read(..) | KeyError::Make(..) | KeyError::Random(_))
    }
}

/// The key. One that is deleted while this operator knows it is put back. Where there never was one it is made, unless
/// `in_use`: then pods have been made that go by a key which is gone.
pub async fn find(federation: &Federation, in_use: bool, context: &Context) -> Result<String, KeyError> {
    let uid = federation.uid().unwrap_or_default();
    let known = context.session(&uid, |it| it.key.clone());
    if let Some(Known { key, .. }) = known.as_ref().filter(|it| it.at.is_some_and(|at| at.elapsed() < FRESH))
    {
        return Ok(key.clone());
    }
    let name = naming::key(federation);
    let secrets: Api<Secret> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let there = secrets.get_opt(&name).await.map_err(|it| KeyError::Read(name.clone(), it))?;
    let key = match (there, known) {
        (Some(secret), known) => {
            if !mirror::belongs(&secret, federation) {
                return Err(KeyError::Foreign(name));
            }
            let key = secret.data.unwrap_or_default().remove(ENTRY).unwrap_or_default();
            let key = String::from_utf8_lossy(&key.0).into_owned();
            process_key(&key, "").map_err(|NoKey| KeyError::Invalid(name.clone()))?;
            if known.is_some_and(|known| known.key != key) {
                return Err(KeyError::Replaced(name));
            }
            key
        }
        (None, Some(Known { key, .. })) => {
            tracing::warn!(federation = federation.name_any(), name, "the key was deleted, and is put back");
            make(&secrets, federation, name, key).await?
        }
        (None, None) if in_use => return Err(KeyError::Gone(name)),
        (None, None) => make(&secrets, federation, name, random()?).await?,
    };
    context.session(&uid, |it| it.key = Some(Known { key: key.clone(), at: Some(Instant::now()) }));
    Ok(key)
}

async fn make(
    secrets: &Api<Secret>,
    federation: &Federation,
    name: String,
    key: String,
) -> Result<String, KeyError> {
    let mut secret: Secret = owned(federation, name.clone());
    secret.immutable = Some(true);
    secret.string_data = Some([(ENTRY.to_owned(), key.clone())].into());
    // Somebody else who makes it at the same moment is found at the next look.
    secrets.create(&PostParams::default(), &secret).await.map_err(|it| KeyError::Make(name, it))?;
    Ok(key)
}

fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; KEY_DIGITS / 2];
    getrandom::fill(&mut bytes)?;
    let mut key = String::with_capacity(KEY_DIGITS);
    for byte in bytes {
        write!(key, "{byte:02x}").expect("a string takes everything");
    }
    Ok(key)
}

/// The keys of all processes, by pod. Each pod finds its own, and no other one, where its container mounts it.
pub fn of_processes(federation: &Federation, key: &str) -> Result<Secret, KeyError> {
    let mut secret: Secret = owned(federation, naming::process_keys(federation));
    let mut keys = BTreeMap::new();
    for group in validate::groups(federation) {
        let set = naming::set(federation, &group.name);
        for node in 0..group.nodes {
            let drawn = process_key(key, &group.process(node));
            let drawn = drawn.map_err(|NoKey| KeyError::Invalid(naming::key(federation)))?;
            keys.insert(format!("{set}-{node}"), ByteString(drawn.into_bytes()));
        }
    }
    secret.data = Some(keys);
    Ok(secret)
}
