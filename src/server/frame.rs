//! The frames of an exec connection, after `101 Switching Protocols` to `podling-exec/1`.
//!
//! Each frame is one byte of kind, four bytes of length (big-endian), then that many bytes:
//!
//! | kind | from | content |
//! |---|---|---|
//! | 0 | client | standard input |
//! | 1 | client | end of standard input; empty |
//! | 2 | client | terminal size: columns and rows, two bytes each, big-endian |
//! | 3 | server | standard output |
//! | 4 | server | standard error |
//! | 5 | server | exit code, four bytes, big-endian, signed; the last frame |
//! | 6 | server | an error text instead of an exit code; the last frame |
//!
//! A client that closes the connection before kind 5 or 6 has gone away, and its command is killed.

use std::io;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::TerminalSize;

/// The protocol's name in the `Upgrade` header.
pub const PROTOCOL: &str = "podling-exec/1";
/// Bytes read from a stream at a time; frames stay this small, so that no side buffers much.
pub const CHUNK: usize = 16 * 1024;
/// Longest content that is accepted.
const LONGEST: usize = 64 * 1024;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecFrame {
    /// Standard input.
    Stdin(Bytes),
    /// End of standard input.
    StdinEnd,
    /// The terminal's size.
    Resize(TerminalSize),
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// Exit code.
    Exit(i32),
    /// Why there is no exit code.
    Error(String),
}

impl ExecFrame {
    /// The bytes on the wire.
    pub fn encode(&self) -> Bytes {
        let size;
        let code;
        let (kind, content): (u8, &[u8]) = match self {
            ExecFrame::Stdin(data) => (0, data),
            ExecFrame::StdinEnd => (1, &[]),
            ExecFrame::Resize(s) => {
                let ([a, b], [c, d]) = (s.columns.to_be_bytes(), s.rows.to_be_bytes());
                size = [a, b, c, d];
                (2, &size)
            }
            ExecFrame::Stdout(data) => (3, data),
            ExecFrame::Stderr(data) => (4, data),
            ExecFrame::Exit(n) => {
                code = n.to_be_bytes();
                (5, &code)
            }
            ExecFrame::Error(text) => (6, text.as_bytes()),
        };
        let mut out = Vec::with_capacity(5 + content.len());
        out.push(kind);
        out.extend_from_slice(&(content.len() as u32).to_be_bytes());
        out.extend_from_slice(content);
        out.into()
    }

    /// Reads the next frame; `None` at the end of the connection between two frames.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let kind = match from.read_u8().await {
            Ok(kind) => kind,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        };
        let length = from.read_u32().await? as usize;
        if length > LONGEST {
            return Err(malformed(format!("a frame of {length} bytes is longer than {LONGEST}")));
        }
        let mut content = vec![0; length];
        from.read_exact(&mut content).await?;
        Self::decode(kind, content.into()).map(Some)
    }

    fn decode(kind: u8, content: Bytes) -> io::Result<Self> {
        Ok(match (kind, content.as_ref()) {
            (0, _) => ExecFrame::Stdin(content),
            (1, []) => ExecFrame::StdinEnd,
            (2, &[a, b, c, d]) => ExecFrame::Resize(TerminalSize {
                columns: u16::from_be_bytes([a, b]),
                rows: u16::from_be_bytes([c, d]),
            }),
            (3, _) => ExecFrame::Stdout(content),
            (4, _) => ExecFrame::Stderr(content),
            (5, &[a, b, c, d]) => ExecFrame::Exit(i32::from_be_bytes([a, b, c, d])),
            (6, text) => ExecFrame::Error(String::from_utf8_lossy(text).into_owned()),
            (kind, rest) => {
                return Err(malformed(format!("frame kind {kind} with {} bytes", rest.len())));
            }
        })
    }
}

fn malformed(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_frame_comes_back_as_it_was() {
        let frames = [
            ExecFrame::Stdin("in".into()),
            ExecFrame::StdinEnd,
            ExecFrame::Resize(TerminalSize { columns: 300, rows: 50 }),
            ExecFrame::Stdout(Bytes::from(vec![0; CHUNK])),
            ExecFrame::Stderr("".into()),
            ExecFrame::Exit(-1),
            ExecFrame::Error("no such file".into()),
        ];
        let wire: Vec<u8> = frames.iter().flat_map(|f| f.encode().to_vec()).collect();
        let mut wire = wire.as_slice();
        for frame in frames {
            assert_eq!(ExecFrame::read(&mut wire).await.unwrap(), Some(frame));
        }
        assert_eq!(ExecFrame::read(&mut wire).await.unwrap(), None);
    }

    #[tokio::test]
    async fn nonsense_is_refused_before_memory_is_taken() {
        let error = ExecFrame::read(&mut &[0u8, 255, 255, 255, 255][..]).await.unwrap_err();
        assert_eq!(error.to_string(), "a frame of 4294967295 bytes is longer than 65536");
        let error = ExecFrame::read(&mut &[9u8, 0, 0, 0, 0][..]).await.unwrap_err();
        assert_eq!(error.to_string(), "frame kind 9 with 0 bytes");
        let error = ExecFrame::read(&mut &[0u8, 0, 0, 0, 9, 1][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
