//! The run's secret, and the handshake by which both ends of a connection show that they know it.
//!
//! The secret itself never crosses a socket, stands in no argument and no environment, and is never logged: a node
//! reads it from its standard input. The handshake authenticates the ends when they meet; it does not protect what
//! follows against someone who can rewrite packets on the wire.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What the first bytes of a connection of ours are. Anything else is a stranger, or a request for metrics.
pub(crate) const MAGIC: [u8; 4] = *b"FLT1";

const NONCE: usize = 16;
const PROOF: usize = blake3::OUT_LEN;

/// Known to the processes of one run only.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// Why a connection was not accepted as one of this run's.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// The connection broke.
    #[error("the connection broke during the handshake: {0}")]
    Io(#[from] io::Error),
    /// The operating system gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// The first bytes are not ours.
    #[error("the other end does not speak this protocol")]
    Magic,
    /// The other end does not know the secret.
    #[error("the other end does not know the run's secret")]
    Proof,
}

impl Secret {
    /// A new one.
    pub fn generate() -> Result<Secret, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Secret(bytes))
    }

    /// Reads one as [`Secret::to_line`] writes it.
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

    /// Reads one from a file, which holds it as [`Secret::to_line`] writes it; the end of the line may be missing.
    pub fn read_file(path: &Path) -> io::Result<Secret> {
        let mut line = fs::read_to_string(path)?.trim().to_owned();
        line.push('\n');
        if line.len() != 65 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a key is 64 hexadecimal digits"));
        }
        Secret::read_line(line.as_bytes())
    }

    /// The line that a child reads from its standard input.
    pub fn to_line(&self) -> String {
        let mut line = String::with_capacity(65);
        for byte in self.0 {
            write!(line, "{byte:02x}").expect("a string takes everything");
        }
        line.push('\n');
        line
    }

    /// Shows knowledge of the secret to the end that was called, and has it shown in turn.
    pub(crate) async fn dial(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), HandshakeError> {
        let mine = nonce()?;
        let mut hello = [0; 4 + NONCE];
        hello[..4].copy_from_slice(&MAGIC);
        hello[4..].copy_from_slice(&mine);
        stream.write_all(&hello).await?;
        let mut theirs = [0; NONCE];
        let mut proof = [0; PROOF];
        stream.read_exact(&mut theirs).await?;
        stream.read_exact(&mut proof).await?;
        self.check(b"called", &mine, &theirs, proof)?;
        stream.write_all(self.proof(b"caller", &mine, &theirs).as_bytes()).await?;
        Ok(())
    }

    /// The same for the end that was called.
    pub(crate) async fn answer(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), HandshakeError> {
        let mut hello = [0; 4 + NONCE];
        stream.read_exact(&mut hello).await?;
        let (magic, theirs) = hello.split_at(4);
        if magic != MAGIC {
            return Err(HandshakeError::Magic);
        }
        let theirs: [u8; NONCE] = theirs.try_into().expect("the rest of the hello");
        let mine = nonce()?;
        let mut answer = [0; NONCE + PROOF];
        answer[..NONCE].copy_from_slice(&mine);
        answer[NONCE..].copy_from_slice(self.proof(b"called", &theirs, &mine).as_bytes());
        stream.write_all(&answer).await?;
        let mut proof = [0; PROOF];
        stream.read_exact(&mut proof).await?;
        self.check(b"caller", &theirs, &mine, proof)
    }

    fn proof(&self, end: &[u8; 6], caller: &[u8; NONCE], called: &[u8; NONCE]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(end).update(caller).update(called);
        hasher.finalize()
    }

    fn check(
        &self,
        end: &[u8; 6],
        caller: &[u8; NONCE],
        called: &[u8; NONCE],
        proof: [u8; PROOF],
    ) -> Result<(), HandshakeError> {
        // Hashes compare in constant time.
        if self.proof(end, caller, called) == blake3::Hash::from_bytes(proof) {
            Ok(())
        } else {
            Err(HandshakeError::Proof)
        }
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

    #[tokio::test]
    async fn both_ends_must_know_the_secret() {
        let ours = Secret::generate().unwrap();
        let other = Secret::generate().unwrap();
        for (caller, called, agree) in [(&ours, &ours, true), (&ours, &other, false), (&other, &ours, false)]
        {
            let (mut left, mut right) = tokio::io::duplex(1024);
            // The end that refuses hangs up, so that the other is not left waiting.
            let called = async move { called.answer(&mut right).await };
            let caller = async move { caller.dial(&mut left).await };
            let (called, caller) = tokio::join!(called, caller);
            assert_eq!((called.is_ok(), caller.is_ok()), (agree, agree));
        }
    }

    #[tokio::test]
    async fn an_end_that_only_pretends_is_refused() {
        let ours = Secret::generate().unwrap();
        let (mut stranger, mut right) = tokio::io::duplex(1024);
        let called = tokio::spawn(async move { ours.answer(&mut right).await });
        stranger.write_all(&MAGIC).await.unwrap();
        stranger.write_all(&[0; NONCE]).await.unwrap();
        let mut answer = [0; NONCE + PROOF];
        stranger.read_exact(&mut answer).await.unwrap();
        // To send the other end's own proof back is not to know the secret.
        stranger.write_all(&answer[NONCE..]).await.unwrap();
        assert!(matches!(called.await.unwrap(), Err(HandshakeError::Proof)));
    }

    #[test]
    fn a_secret_survives_the_line_and_never_shows() {
        let secret = Secret::generate().unwrap();
        let read = Secret::read_line(secret.to_line().as_bytes()).unwrap();
        assert_eq!(read.0, secret.0);
        assert!(Secret::read_line(&b"too short\n"[..]).is_err());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
