//! What can go wrong when talking to containerd, in words for people and in classes for retry.

use std::path::PathBuf;
use std::time::Duration;

use tonic::{Code, Status};

/// What kind of failure it is. Retry is decided by this, never by a message's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// containerd (or a shim) is not there or went away during the call; it may come back.
    Unavailable,
    /// The call did not answer within its deadline.
    Timeout,
    /// The object does not exist.
    NotFound,
    /// The object exists already.
    AlreadyExists,
    /// The object is in a state that forbids the operation.
    FailedPrecondition,
    /// containerd refuses the request as it is.
    InvalidArgument,
    /// A disk is full.
    NoSpace,
    /// Anything else, among it all that the OCI runtime reports.
    Other,
}

impl ErrorClass {
    /// True when the same call may succeed later without anybody changing anything.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout | Self::NoSpace)
    }
}

/// A failed operation. The text names the operation and the object, and fits on one line.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// containerd answered with an error, or the connection broke.
    #[error("cannot {operation}{}: {message}", subject(.id))]
    Call {
        /// What was tried, as "create task".
        operation: &'static str,
        /// Name or id of the object, empty where there is none.
        id: String,
        /// The kind of failure.
        class: ErrorClass,
        /// containerd's message, cleaned.
        message: String,
    },
    /// No answer in time.
    #[error("cannot {operation}{}: containerd gave no answer within {} s", subject(.id), .after.as_secs())]
    Timeout {
        /// What was tried.
        operation: &'static str,
        /// Name or id of the object.
        id: String,
        /// The deadline that passed.
        after: Duration,
    },
    /// The socket's path does not fit into a socket address.
    #[error(
        "containerd socket path {path} is {length} bytes long, but a socket path holds at most {SUN_PATH_MAX}: use a shorter path"
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The containerd namespace is not one that containerd takes.
    #[error(
        "containerd namespace {0:?} is not valid: use letters, digits, '-', '_' and '.', starting and ending with a letter or digit, at most 76 bytes"
    )]
    Namespace(String),
    /// Something on this side failed: a FIFO, a thread, an encoding.
    #[error("cannot {operation}{}: {message}", subject(.id))]
    Local {
        /// What was tried.
        operation: &'static str,
        /// Name or id of the object.
        id: String,
        /// The kind of failure.
        class: ErrorClass,
        /// What the system said.
        message: String,
    },
}

/// Bytes of `sockaddr_un::sun_path` that a path may use, its final NUL excepted (`unix(7)`).
pub const SUN_PATH_MAX: usize = 107;

impl RuntimeError {
    /// The kind of failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Call { class, .. } | Self::Local { class, .. } => *class,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::SocketPath { .. } | Self::Namespace(_) => ErrorClass::InvalidArgument,
        }
    }

    /// True when the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.class() == ErrorClass::NotFound
    }

    /// True when the object existed already.
    pub fn is_already_exists(&self) -> bool {
        self.class() == ErrorClass::AlreadyExists
    }

    pub(crate) fn from_status(operation: &'static str, id: &str, status: &Status) -> Self {
        Self::Call { operation, id: id.to_owned(), class: classify(status), message: describe(status) }
    }

    pub(crate) fn from_io(operation: &'static str, id: &str, error: &std::io::Error) -> Self {
        let class = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorClass::NoSpace,
            std::io::ErrorKind::NotFound => ErrorClass::NotFound,
            std::io::ErrorKind::TimedOut => ErrorClass::Timeout,
            _ => ErrorClass::Other,
        };
        Self::Local { operation, id: id.to_owned(), class, message: error.to_string() }
    }

    pub(crate) fn local(operation: &'static str, id: &str, message: impl std::fmt::Display) -> Self {
        Self::Local { operation, id: id.to_owned(), class: ErrorClass::Other, message: message.to_string() }
    }

    /// Something that was given cannot be right, whoever finds out.
    pub(crate) fn invalid(operation: &'static str, id: &str, message: impl std::fmt::Display) -> Self {
        let class = ErrorClass::InvalidArgument;
        Self::Local { operation, id: id.to_owned(), class, message: message.to_string() }
    }
}

/// The id in ` <id>`, with the 64 hex digits of a container id cut to the 12 that people read.
fn subject(id: &str) -> String {
    if id.is_empty() {
        return String::new();
    }
    let hex = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    format!(" {}", if hex { &id[..12] } else { id })
}

fn classify(status: &Status) -> ErrorClass {
    // A status with a source was made on this side: the connection could not be made or broke. What
    // containerd itself answers never carries one.
    if std::error::Error::source(status).is_some() {
        return ErrorClass::Unavailable;
    }
    match status.code() {
        Code::NotFound => ErrorClass::NotFound,
        Code::AlreadyExists => ErrorClass::AlreadyExists,
        Code::FailedPrecondition | Code::OutOfRange => ErrorClass::FailedPrecondition,
        Code::InvalidArgument | Code::Unimplemented => ErrorClass::InvalidArgument,
        // Cancelled is what containerd answers to calls in flight when it shuts down.
        Code::Unavailable | Code::Cancelled | Code::Aborted => ErrorClass::Unavailable,
        Code::DeadlineExceeded => ErrorClass::Timeout,
        // containerd has no code for a full disk: the errno's text is all that comes through.
        _ if status.message().contains("no space left on device") => ErrorClass::NoSpace,
        // Likewise for the deadlines that containerd itself sets on a shim, and for a shim that died.
        _ if status.message().contains("context deadline exceeded") => ErrorClass::Timeout,
        _ if status.message().contains("ttrpc: closed") => ErrorClass::Unavailable,
        _ => ErrorClass::Other,
    }
}

fn describe(status: &Status) -> String {
    let Some(mut source) = std::error::Error::source(status) else { return clean(status.message()) };
    while let Some(next) = source.source() {
        source = next;
    }
    format!("containerd is not reachable: {}", clean(&source.to_string()))
}

/// Longest message passed on, in bytes; runc's longest useful ones are near 400.
const MESSAGE_MAX: usize = 600;

/// Makes a Go error chain readable: one line, no `rpc error:` wrappers, no printed structs or pointers,
/// none of the class words that containerd appends.
pub(crate) fn clean(message: &str) -> String {
    let mut text = message.split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some(at) = text.find("rpc error: code = ") {
        let end = text[at..].find("desc = ").map_or(text.len(), |d| at + d + "desc = ".len());
        text.replace_range(at..end, "");
    }
    drop_structs(&mut text);
    loop {
        let before = text.len();
        for suffix in
            [": unknown", ": not found", ": already exists", ": failed precondition", ": unavailable"]
        {
            // "container x: not found" has nothing else to say, so only a suffix of a chain goes.
            if text.ends_with(suffix) && text[..text.len() - suffix.len()].contains(": ") {
                text.truncate(text.len() - suffix.len());
            }
        }
        if text.len() == before {
            break;
        }
    }
    if text.len() > MESSAGE_MAX {
        let mut end = MESSAGE_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    if text.is_empty() { "no reason given".to_owned() } else { text }
}

/// Replaces what Go's `%+v` prints of a struct pointer, `&{…}` with its nested braces, by `…`.
fn drop_structs(text: &mut String) {
    while let Some(start) = text.find("&{") {
        let mut depth = 0usize;
        let mut end = text.len();
        for (at, byte) in text.bytes().enumerate().skip(start + 1) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                end = at + 1;
                break;
            }
        }
        text.replace_range(start..end, "…");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_runc_keeps_its_reason_and_loses_the_wrappers() {
        let raw = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
                   container process: exec: \"nope\": executable file not found in $PATH: unknown";
        let e = RuntimeError::from_status("create task", "web", &Status::unknown(raw));
        assert_eq!(
            e.to_string(),
            "cannot create task web: failed to create shim task: OCI runtime create failed: runc create \
             failed: unable to start container process: exec: \"nope\": executable file not found in $PATH"
        );
        assert_eq!(e.class(), ErrorClass::Other);
    }

    #[test]
    fn printed_structs_newlines_and_rpc_wrappers_go() {
        assert_eq!(
            clean(
                "failed: rpc error: code = NotFound desc = image &{Name:a Labels:{x:1}} is\n gone: not found"
            ),
            "failed: image … is gone"
        );
        assert_eq!(clean("task x: not found"), "task x: not found");
        assert_eq!(clean(""), "no reason given");
        assert_eq!(clean("an open &{struct"), "an open …");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let text = clean(&"ä".repeat(1000));
        assert!(text.len() <= MESSAGE_MAX + "…".len() && text.ends_with('…'));
    }

    #[test]
    fn a_container_id_is_shortened_in_messages() {
        let e = RuntimeError::Timeout {
            operation: "delete task",
            id: "ab".repeat(32),
            after: Duration::from_secs(120),
        };
        assert_eq!(e.to_string(), "cannot delete task abababababab: containerd gave no answer within 120 s");
        assert_eq!(e.class(), ErrorClass::Timeout);
    }

    #[test]
    fn a_full_disk_and_a_dead_shim_have_their_own_class() {
        let class = |m: &str| RuntimeError::from_status("x", "", &Status::unknown(m)).class();
        assert_eq!(class("write /var/lib/x: no space left on device: unknown"), ErrorClass::NoSpace);
        assert_eq!(class("ttrpc: closed: unknown"), ErrorClass::Unavailable);
        assert_eq!(class("context deadline exceeded: unknown"), ErrorClass::Timeout);
        assert!(class("write: no space left on device").is_transient());
        assert!(!class("exec format error").is_transient());
    }

    #[test]
    fn a_local_error_names_the_operation() {
        let io = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let e = RuntimeError::from_io("make FIFOs for exec in container", "web", &io);
        assert_eq!(e.to_string(), format!("cannot make FIFOs for exec in container web: {io}"));
        assert_eq!(e.class(), ErrorClass::NoSpace);
    }
}
