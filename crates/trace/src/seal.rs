//! The seal at the end of a stream: the number of facts, the author of the seal, and a digest of all preceding bytes.
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | mark | 6 | `FLSEAL`, with which no record begins |
//! | by | 1 | author of the seal: 0 the process, 1 the supervisor |
//! | incomplete | 1 | 1 if later facts may never have arrived, else 0 |
//! | facts | 8 | number of facts, little-endian |
//! | digest | 32 | BLAKE3 of everything before it, including the file's header and the seal's first 16 bytes |

use std::fmt;
use std::io::{self, Read};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) const MARK: [u8; 6] = *b"FLSEAL";
const HEAD_LEN: usize = 16;
/// The length of a seal in bytes.
pub(crate) const SEAL_LEN: usize = HEAD_LEN + 32;

/// The author of a seal. By adding the seal, the author confirms that the stream ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SealedBy {
    /// The process, which ended normally.
    Process,
    /// The supervisor, because the process was killed. The stream contains the facts that the supervisor
    /// received.
    Supervisor,
}

/// The end of a stream of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seal {
    /// The author of the seal.
    #[serde(rename = "sealedBy")]
    pub by: SealedBy,
    /// The number of facts in the stream.
    pub facts: u64,
    /// Whether the process may have reported facts that the supervisor never received.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// BLAKE3 of every byte of the file before this digest.
    pub digest: Hash,
}

/// A BLAKE3 digest. Displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Hashes these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the digest of the remaining content of a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn of(mut file: impl Read) -> io::Result<Hash> {
        let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; 1 << 16]);
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok(Hash(*hasher.finalize().as_bytes())),
                Ok(read) => {
                    hasher.update(&piece[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(deserializer)?;
        blake3::Hash::from_hex(&text).map(|it| Hash(*it.as_bytes())).map_err(|_| {
            D::Error::custom(format!("a digest must have 64 hexadecimal digits (found `{text}`)"))
        })
    }
}

/// Hashes a stream while it is written or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sealer(blake3::Hasher);

impl Sealer {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the seal over everything hashed so far.
    pub(crate) fn seal(&self, by: SealedBy, facts: u64, incomplete: bool) -> Seal {
        let mut seal = Seal { by, facts, incomplete, digest: Hash([0; 32]) };
        let mut hasher = self.0.clone();
        seal.digest = Hash(*hasher.update(&seal.head()).finalize().as_bytes());
        seal
    }
}

impl Seal {
    fn head(&self) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..6].copy_from_slice(&MARK);
        head[6] = match self.by {
            SealedBy::Process => 0,
            SealedBy::Supervisor => 1,
        };
        head[7] = self.incomplete.into();
        head[8..].copy_from_slice(&self.facts.to_le_bytes());
        head
    }

    pub(crate) fn to_bytes(self) -> [u8; SEAL_LEN] {
        let mut bytes = [0; SEAL_LEN];
        bytes[..HEAD_LEN].copy_from_slice(&self.head());
        bytes[HEAD_LEN..].copy_from_slice(&self.digest.0);
        bytes
    }

    /// Parses the output of [`Seal::to_bytes`], without checking the digest. Returns `None` for anything
    /// else.
    pub(crate) fn from_bytes(bytes: &[u8; SEAL_LEN]) -> Option<Seal> {
        let by = match bytes[6] {
            0 => SealedBy::Process,
            1 => SealedBy::Supervisor,
            _ => return None,
        };
        let seal = Seal {
            by,
            facts: u64::from_le_bytes(bytes[8..HEAD_LEN].try_into().expect("eight bytes")),
            incomplete: bytes[7] == 1,
            digest: Hash(bytes[HEAD_LEN..].try_into().expect("32 bytes")),
        };
        (seal.to_bytes() == *bytes).then_some(seal)
    }
}
