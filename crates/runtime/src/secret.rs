//! Keys of a run's processes, and the handshake in which both ends of a connection prove that they know the
//! same key.
//!
//! Each process has its own key, which it shares with the supervisor. The key authenticates the supervisor's connection
//! to the process's agent and the process's connection to the supervisor. In addition, every pair of processes shares a
//! key. Only the supervisor can derive that key. It sends the key to both processes, encrypted with their own keys.
//! Therefore, no process can impersonate another.
//!
//! The key of a process never crosses a socket, appears in no argument and no environment variable, and is never
//! logged: a node reads it from its standard input. The handshake authenticates both ends of a new connection. It
//! does not protect later data from an attacker who can modify packets.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use faultline_core::ProcessId;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first bytes of every connection between programs of a run. Any other connection is a request for
/// metrics, or unknown.
pub(crate) const MAGIC: [u8; 4] = *b"FLT3";

const NONCE: usize = 16;
const PROOF: usize = blake3::OUT_LEN;
/// Length of the caller's first message: [`MAGIC`], the two ends, and a nonce.
const HELLO: usize = 4 + 8 + NONCE;

/// A key shared by the two ends of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// The keys of all processes of a run. Only the supervisor has them all.
#[derive(Clone, Debug)]
pub struct Keys(Vec<Secret>);

/// The keys that a process shares with others, encrypted and authenticated with the process's own key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WrappedKeys {
    nonce: [u8; NONCE],
    bytes: Vec<u8>,
    tag: [u8; PROOF],
}

/// The two ends of a connection. [`ProcessId::SUPERVISOR`] denotes the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) caller: ProcessId,
    pub(crate) called: ProcessId,
}

/// The reason why a handshake failed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// The connection failed.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The operating system provided no random bytes.
    #[error("cannot generate random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// The connection does not begin with the expected bytes.
    #[error("the other end is not a process of a Faultline run")]
    Magic,
    /// The other end does not have the identity that it claims, or tried to reach another process.
    #[error("the other end does not have the key of the process that it claims to be")]
    Proof,
}

impl Keys {
    /// Creates the set of keys, indexed by process.
    pub fn new(of_processes: Vec<Secret>) -> Keys {
        Keys(of_processes)
    }

    /// Generates new keys for `processes` processes.
    ///
    /// # Errors
    ///
    /// Fails if the operating system provides no random bytes.
    pub fn generate(processes: usize) -> Result<Keys, getrandom::Error> {
        (0..processes).map(|_| Secret::generate()).collect::<Result<_, _>>().map(Keys)
    }

    /// Returns the key of a process, if the process exists.
    pub fn of(&self, process: ProcessId) -> Option<&Secret> {
        self.0.get(process.index())
    }

    /// Returns the keys that a process shares with each of the other processes, wrapped with the process's own key.
    pub(crate) fn wrapped_pairs(&self, process: ProcessId) -> Result<WrappedKeys, getrandom::Error> {
        let own = &self.0[process.index()];
        let peers = (0..).map(ProcessId).zip(&self.0);
        let bytes: Vec<u8> = peers.flat_map(|(peer, key)| pair((process, own), (peer, key)).0).collect();
        own.wrap(bytes)
    }
}

/// Derives the key that two processes share, regardless of their order.
fn pair(one: (ProcessId, &Secret), other: (ProcessId, &Secret)) -> Secret {
    let (lower, higher) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let mut hasher = blake3::Hasher::new_derive_key("faultline 2026 key of a pair of processes");
    for (process, key) in [lower, higher] {
        hasher.update(&process.0.to_le_bytes()).update(&key.0);
    }
    Secret(hasher.finalize().into())
}

impl Secret {
    /// Generates a new key.
    ///
    /// # Errors
    ///
    /// Fails if the operating system provides no random bytes.
    pub fn generate() -> Result<Secret, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Secret(bytes))
    }

    /// Reads a key in the format of [`Secret::to_line`].
    ///
    /// # Errors
    ///
    /// Fails if the line is incomplete or has another format.
    pub fn read_line(mut from: impl Read) -> io::Result<Secret> {
        let mut line = [0; 65];
        from.read_exact(&mut line)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(line.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok();
            *byte =
                pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(Secret(bytes))
    }

    /// Reads a key from a file in the format of [`Secret::to_line`]. The line break is optional.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or has another format.
    pub fn read_file(path: &Path) -> io::Result<Secret> {
        let mut line = fs::read_to_string(path)?.trim().to_owned();
        line.push('\n');
        if line.len() != 65 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a key must have exactly 64 hexadecimal digits",
            ));
        }
        Secret::read_line(line.as_bytes())
    }

    /// Returns the first line that a child reads from its standard input: 64 hexadecimal digits and a line break.
    pub fn to_line(&self) -> String {
        let mut line = String::with_capacity(65);
        for byte in self.0 {
            write!(line, "{byte:02x}").expect("a string accepts every write");
        }
        line.push('\n');
        line
    }

    /// Derives the key that the supervisor and the agent of this key's process share if the agent knows the UID of its
    /// place. An agent at another place has another key, even if it hosts the same process.
    pub(crate) fn of_place(&self, uid: &str) -> Secret {
        let mut hasher = blake3::Hasher::new_derive_key("faultline 2026 key of a place");
        hasher.update(&self.0).update(uid.as_bytes());
        Secret(hasher.finalize().into())
    }

    /// Performs the handshake as the caller: proves knowledge of the key, and requires the same proof in return.
    pub(crate) async fn dial(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        ends: Ends,
    ) -> Result<(), HandshakeError> {
        Secret::dial_with(&[self], stream, ends).await
    }

    /// Performs the handshake with the agent at the place `uid`. An agent that does not know the UID of its place proves
    /// that it knows the key of the process. An agent at another place fails the handshake.
    pub(crate) async fn dial_place(
        &self,
        uid: &str,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        ends: Ends,
    ) -> Result<(), HandshakeError> {
        Secret::dial_with(&[&self.of_place(uid), self], stream, ends).await
    }

    /// Performs the handshake as the caller, with the key among `keys` that the called end has.
    async fn dial_with(
        keys: &[&Secret],
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        ends: Ends,
    ) -> Result<(), HandshakeError> {
        let mine = nonce()?;
        let mut hello = [0; HELLO];
        hello[..4].copy_from_slice(&MAGIC);
        hello[4..8].copy_from_slice(&ends.caller.0.to_le_bytes());
        hello[8..12].copy_from_slice(&ends.called.0.to_le_bytes());
        hello[12..].copy_from_slice(&mine);
        stream.write_all(&hello).await?;
        let mut theirs = [0; NONCE];
        let mut proof = [0; PROOF];
        stream.read_exact(&mut theirs).await?;
        stream.read_exact(&mut proof).await?;
        let is_known = |key: &&&Secret| key.check(b"called", ends, &mine, &theirs, proof).is_ok();
        let key = keys.iter().find(is_known).ok_or(HandshakeError::Proof)?;
        stream.write_all(key.proof(b"caller", ends, &mine, &theirs).as_bytes()).await?;
        Ok(())
    }

    /// Performs the handshake as the called program, and returns the authenticated caller. `key_of` returns the key
    /// that the two ends share. If there is no such key, the connection is closed, exactly as for a wrong key.
    pub(crate) async fn answer<'a>(
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        key_of: impl FnOnce(Ends) -> Option<&'a Secret>,
    ) -> Result<Ends, HandshakeError> {
        let mut hello = [0; HELLO];
        stream.read_exact(&mut hello).await?;
        let (magic, rest) = hello.split_at(4);
        if magic != MAGIC {
            return Err(HandshakeError::Magic);
        }
        let process =
            |at: usize| ProcessId(u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes")));
        let ends = Ends { caller: process(0), called: process(4) };
        let theirs: [u8; NONCE] = rest[8..].try_into().expect("the rest of the hello");
        let key = key_of(ends).ok_or(HandshakeError::Proof)?;
        let mine = nonce()?;
        let mut answer = [0; NONCE + PROOF];
        answer[..NONCE].copy_from_slice(&mine);
        answer[NONCE..].copy_from_slice(key.proof(b"called", ends, &theirs, &mine).as_bytes());
        stream.write_all(&answer).await?;
        let mut proof = [0; PROOF];
        stream.read_exact(&mut proof).await?;
        key.check(b"caller", ends, &theirs, &mine, proof)?;
        Ok(ends)
    }

    /// Computes the proof that one end sends. The proof covers both ends, so that a proof obtained from one end is
    /// useless against another.
    fn proof(&self, end: &[u8; 6], ends: Ends, caller: &[u8; NONCE], called: &[u8; NONCE]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(end).update(&ends.caller.0.to_le_bytes()).update(&ends.called.0.to_le_bytes());
        hasher.update(caller).update(called);
        hasher.finalize()
    }

    fn check(
        &self,
        end: &[u8; 6],
        ends: Ends,
        caller: &[u8; NONCE],
        called: &[u8; NONCE],
        proof: [u8; PROOF],
    ) -> Result<(), HandshakeError> {
        // The comparison of hashes takes constant time.
        if self.proof(end, ends, caller, called) == blake3::Hash::from_bytes(proof) {
            Ok(())
        } else {
            Err(HandshakeError::Proof)
        }
    }

    /// Encrypts keys for the owner of this key.
    fn wrap(&self, mut bytes: Vec<u8>) -> Result<WrappedKeys, getrandom::Error> {
        let nonce = nonce()?;
        self.cipher(&nonce, &mut bytes);
        let tag = self.tag(&nonce, &bytes).into();
        Ok(WrappedKeys { nonce, bytes, tag })
    }

    /// Decrypts keys that were wrapped with this key, indexed by process. Returns `None` if they were wrapped with
    /// another key, or have changed since.
    pub(crate) fn unwrap(&self, wrapped: &WrappedKeys) -> Option<Vec<Secret>> {
        let WrappedKeys { nonce, bytes, tag } = wrapped;
        if self.tag(nonce, bytes) != blake3::Hash::from_bytes(*tag) {
            return None;
        }
        let mut bytes = bytes.clone();
        self.cipher(nonce, &mut bytes);
        let keys = bytes.chunks_exact(32).map(|it| Secret(it.try_into().expect("32 bytes")));
        Some(keys.collect())
    }

    /// Encrypts or decrypts with a stream cipher: the output of a keyed hash over a nonce that is never
    /// reused.
    fn cipher(&self, nonce: &[u8; NONCE], bytes: &mut [u8]) {
        let mut stream = vec![0; bytes.len()];
        blake3::Hasher::new_keyed(&self.0).update(b"cipher").update(nonce).finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }

    fn tag(&self, nonce: &[u8; NONCE], bytes: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(b"wrapped").update(nonce).update(bytes).finalize()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn nonce() -> Result<[u8; NONCE], getrandom::Error> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends = Ends { caller: ProcessId(1), called: ProcessId(2) };

    /// Returns whether a caller that has the key `caller` and claims the ends `said` completes the handshake
    /// with an end that has the key `called` and expects the ends `expected`.
    async fn meet(caller: &Secret, said: Ends, called: &Secret, expected: Ends) -> bool {
        let (mut left, mut right) = tokio::io::duplex(1024);
        // An end that refuses the handshake closes the connection, so that the other does not wait.
        let called =
            async move { Secret::answer(&mut right, |ends| Some(called).filter(|_| ends == expected)).await };
        let caller = async move { caller.dial(&mut left, said).await };
        let (called, caller) = tokio::join!(called, caller);
        assert_eq!(called.is_ok(), caller.is_ok());
        called.is_ok_and(|ends| ends == said)
    }

    #[tokio::test]
    async fn both_ends_must_know_the_key() {
        let ours = Secret::generate().unwrap();
        let other = Secret::generate().unwrap();
        assert!(meet(&ours, ENDS, &ours, ENDS).await);
        assert!(!meet(&ours, ENDS, &other, ENDS).await);
        assert!(!meet(&other, ENDS, &ours, ENDS).await);
    }

    #[tokio::test]
    async fn a_process_cannot_impersonate_another() {
        let keys = Keys::generate(3).unwrap();
        let pairs = |of: u32| {
            let wrapped = keys.wrapped_pairs(ProcessId(of)).unwrap();
            keys.of(ProcessId(of)).unwrap().unwrap(&wrapped).expect("the keys are for this process")
        };
        let (first, second, third) = (pairs(0), pairs(1), pairs(2));
        // Any two processes share a key that the third does not have.
        assert_eq!((&first[1], &first[2], &second[2]), (&second[0], &third[0], &third[1]));
        assert!(!third.contains(&first[1]) && !first.contains(&second[2]));
        // Process 0 cannot call process 2 as process 1.
        let pretended = Ends { caller: ProcessId(1), called: ProcessId(2) };
        for known in first.iter().chain(keys.of(ProcessId(0))) {
            assert!(!meet(known, pretended, &third[1], pretended).await);
        }
        // Process 0 can neither read nor change another process's wrapped keys.
        let for_second = keys.wrapped_pairs(ProcessId(1)).unwrap();
        assert_eq!(keys.of(ProcessId(0)).unwrap().unwrap(&for_second), None);
        let mut changed = for_second;
        changed.bytes[3] ^= 1;
        assert_eq!(keys.of(ProcessId(1)).unwrap().unwrap(&changed), None);
    }

    #[tokio::test]
    async fn an_end_without_the_key_is_refused() {
        let ours = Secret::generate().unwrap();
        let (mut stranger, mut right) = tokio::io::duplex(1024);
        let called = tokio::spawn(async move { Secret::answer(&mut right, |_| Some(&ours)).await });
        stranger.write_all(&MAGIC).await.unwrap();
        stranger.write_all(&[0; HELLO - 4]).await.unwrap();
        let mut answer = [0; NONCE + PROOF];
        stranger.read_exact(&mut answer).await.unwrap();
        // Returning the other end's own proof does not prove knowledge of the key.
        stranger.write_all(&answer[NONCE..]).await.unwrap();
        assert!(matches!(called.await.unwrap(), Err(HandshakeError::Proof)));
    }

    #[tokio::test]
    async fn an_answer_from_one_direction_is_invalid_in_the_other() {
        // The supervisor and the agent share a key. An attacker between them impersonates the agent to call the
        // supervisor, and uses the supervisor's response as its own response to the supervisor's call to the agent.
        let key = Secret::generate().unwrap();
        let agent = ProcessId(4);
        let call = Ends { caller: ProcessId::SUPERVISOR, called: agent };
        let reversed = Ends { caller: agent, called: ProcessId::SUPERVISOR };
        let (mut to_agent, mut as_agent) = tokio::io::duplex(1024);
        let (mut as_caller, mut at_supervisor) = tokio::io::duplex(1024);
        let (ours, its) = (key.clone(), key);
        let dial = tokio::spawn(async move { ours.dial(&mut to_agent, call).await });
        let answer = tokio::spawn(async move { Secret::answer(&mut at_supervisor, |_| Some(&its)).await });
        let mut hello = [0; HELLO];
        as_agent.read_exact(&mut hello).await.unwrap();
        hello[4..8].copy_from_slice(&reversed.caller.0.to_le_bytes());
        hello[8..12].copy_from_slice(&reversed.called.0.to_le_bytes());
        as_caller.write_all(&hello).await.unwrap();
        let mut said = [0; NONCE + PROOF];
        as_caller.read_exact(&mut said).await.unwrap();
        as_agent.write_all(&said).await.unwrap();
        assert!(matches!(dial.await.unwrap(), Err(HandshakeError::Proof)));
        drop(as_caller);
        assert!(answer.await.unwrap().is_err());
    }

    #[test]
    fn a_secret_survives_encoding_and_is_never_shown() {
        let secret = Secret::generate().unwrap();
        let read = Secret::read_line(secret.to_line().as_bytes()).unwrap();
        assert_eq!(read.0, secret.0);
        assert!(Secret::read_line(&b"too short\n"[..]).is_err());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
