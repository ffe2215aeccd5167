//! Type-erased values of protocols from other crates.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use faultline_core::application::Wire;
use faultline_core::protocol::Stamp;
use faultline_core::{Footprint, Position};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that a protocol sends or saves.
///
/// Within one program, the value is passed on unchanged. Between programs, and from storage, it arrives as bytes, which
/// are decoded when the protocol receives the value.
#[derive(Clone)]
pub struct Opaque(Content);

#[derive(Clone)]
enum Content {
    Value(Arc<dyn Value>),
    Encoded(Arc<[u8]>),
}

trait Value: Any + Send + Sync {
    fn encoded(&self) -> Vec<u8>;
    fn equals(&self, other: &dyn Value) -> bool;
    fn debug(&self) -> &dyn fmt::Debug;
}

impl<T: Wire> Value for T {
    fn encoded(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a value of a protocol has a serialised form")
    }

    fn equals(&self, other: &dyn Value) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<T>() == Some(self)
    }

    fn debug(&self) -> &dyn fmt::Debug {
        self
    }
}

impl Opaque {
    pub(super) fn of<T: Wire>(value: T) -> Opaque {
        Opaque::share(Arc::new(value))
    }

    pub(super) fn share<T: Wire>(value: Arc<T>) -> Opaque {
        Opaque(Content::Value(value))
    }

    /// Returns the value.
    ///
    /// # Panics
    ///
    /// Panics if the value has another type, which is impossible because a run has only one protocol.
    pub(super) fn reveal<T: Wire>(&self) -> Arc<T> {
        match &self.0 {
            Content::Value(value) => {
                let value: Arc<dyn Any + Send + Sync> = value.clone();
                value.downcast().expect("all processes have the same protocol")
            }
            Content::Encoded(bytes) => {
                let value = postcard::from_bytes(bytes).expect("all processes have the same protocol");
                Arc::new(value)
            }
        }
    }

    fn encoded(&self) -> Arc<[u8]> {
        match &self.0 {
            Content::Value(value) => value.encoded().into(),
            Content::Encoded(bytes) => bytes.clone(),
        }
    }

    /// Adds the value to a footprint, excluding the data to which it refers.
    pub(super) fn add_to(&self, footprint: &mut Footprint) {
        match &self.0 {
            Content::Value(value) => drop(footprint.add_arc(value)),
            Content::Encoded(bytes) => drop(footprint.add_arc(bytes)),
        }
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Opaque) -> bool {
        match (&self.0, &other.0) {
            (Content::Value(one), Content::Value(other)) => one.equals(&**other),
            _ => self.encoded() == other.encoded(),
        }
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Value(value) => value.debug().fmt(f),
            Content::Encoded(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

impl Serialize for Opaque {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.encoded().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Opaque {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Opaque, D::Error> {
        Ok(Opaque(Content::Encoded(Arc::deserialize(deserializer)?)))
    }
}

/// The stamp that a protocol piggybacks on a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpaqueStamp {
    pub(super) position: Position,
    pub(super) value: Opaque,
}

impl Stamp for OpaqueStamp {
    fn position(&self) -> Position {
        self.position
    }
}

/// A protocol's part of a saved state, with the length of its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpaqueSaved {
    pub(super) len: u64,
    pub(super) value: Opaque,
}

/// A message of a protocol, with the name under which it is counted. The name is not sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpaqueMessage {
    #[serde(skip, default = "received")]
    pub(super) kind: &'static str,
    pub(super) value: Opaque,
}

fn received() -> &'static str {
    "control"
}

impl PartialEq for OpaqueMessage {
    fn eq(&self, other: &OpaqueMessage) -> bool {
        self.value == other.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_unchanged_after_it_is_encoded_and_decoded() {
        let sent = Opaque::of((7_u32, vec!["a".to_owned()]));
        let bytes = postcard::to_allocvec(&sent).unwrap();
        let received: Opaque = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(received, sent);
        assert_eq!(*received.reveal::<(u32, Vec<String>)>(), (7, vec!["a".to_owned()]));
        assert_ne!(received, Opaque::of((8_u32, vec!["a".to_owned()])));
        assert_eq!(format!("{sent:?}"), "(7, [\"a\"])");
    }

    #[test]
    fn a_shared_value_is_not_copied() {
        let value = Arc::new(vec![1_u8]);
        assert!(Arc::ptr_eq(&Opaque::share(value.clone()).reveal(), &value));
    }
}
