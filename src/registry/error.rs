//! What can go wrong with a registry: in classes for retry, and in words that name each server asked.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use hyper::{HeaderMap, StatusCode, header};

use crate::http::connect::{ConnectError, RequestError};

/// What kind of failure it is. Retry is decided by this, never by a message's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// It could not be reached, or the connection broke.
    Network,
    /// It answered that it cannot at the moment.
    Server,
    /// It asks to wait.
    RateLimit,
    /// It does not have this.
    NotFound,
    /// It wants other credentials.
    Auth,
    /// It sent something else than what was asked for.
    Damaged,
    /// It refuses the request, or it is no registry.
    Refused,
    /// It is not asked, since its configuration is wrong.
    Config,
}

impl FailureClass {
    /// True when the same request may succeed later without anybody changing anything at the registry.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Network | Self::Server | Self::RateLimit)
    }
}

/// One server's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub class: FailureClass,
    /// In words, without a credential.
    pub text: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// Nobody was there to speak to.
    pub unreached: bool,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(class: FailureClass, text: impl Into<String>) -> Self {
        Self { class, text: text.into(), retry_after: None, unreached: false }
    }

    /// Whether the server may speak the other one of http and https.
    pub(super) fn other_scheme(&self) -> bool {
        !self.unreached && matches!(self.class, FailureClass::Network | FailureClass::Refused)
    }

    /// The connection could not be made, or broke.
    pub(super) fn transport(e: &(dyn Error + 'static)) -> Self {
        let mut at: Option<&(dyn Error + 'static)> = Some(e);
        let mut last = e;
        while let Some(e) = at {
            if let Some(connect) = e.downcast_ref::<ConnectError>() {
                let unreached = !matches!(connect, ConnectError::Tls { .. });
                return Self { unreached, ..Self::new(FailureClass::Network, connect.to_string()) };
            }
            if let Some(RequestError::Identity) = e.downcast_ref::<RequestError>() {
                return Self::new(FailureClass::Auth, RequestError::Identity.to_string());
            }
            last = e;
            at = e.source();
        }
        Self::new(FailureClass::Network, format!("the connection broke: {last}"))
    }

    /// An answer that is none.
    pub(super) fn status(status: StatusCode, headers: &HeaderMap, said: Option<String>) -> Self {
        let class = match status.as_u16() {
            401 | 403 | 407 => FailureClass::Auth,
            404 | 410 => FailureClass::NotFound,
            429 => FailureClass::RateLimit,
            408 | 500..=599 => FailureClass::Server,
            _ => FailureClass::Refused,
        };
        let word = match class {
            FailureClass::Auth if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                "access denied by the proxy"
            }
            FailureClass::Auth => "access denied",
            FailureClass::NotFound => "not found",
            FailureClass::RateLimit => "too many requests",
            _ => status.canonical_reason().unwrap_or("no registry's answer"),
        };
        let said = said.map(|s| format!(": {s}")).unwrap_or_default();
        let text = format!("{} {}{said}", status.as_u16(), word.to_lowercase());
        Self { retry_after: retry_after(headers), ..Self::new(class, text) }
    }
}

/// `Retry-After` in seconds or as a date (RFC 9110, 10.2.3), an hour at most.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match value.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
            u64::try_from(at.as_second() - jiff::Timestamp::now().as_second()).unwrap_or(0)
        }
    };
    Some(Duration::from_secs(seconds.min(3600)))
}

/// A server that was asked, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// `https://mirror.example`.
    pub at: String,
    /// Why it was not the one.
    pub failure: Failure,
}

/// No server had it. Names each in the order they were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryError {
    /// What was asked for, as "manifest 1.2" or "blob sha256:…".
    pub what: String,
    /// The servers; empty when the configuration names none that may be asked.
    pub attempts: Vec<Attempt>,
}

impl RegistryError {
    /// The kind of failure. The registry itself, asked last, knows best; unless it could not be reached, and
    /// then a mirror's answer is no better than none.
    pub fn class(&self) -> FailureClass {
        self.attempts.last().map_or(FailureClass::Config, |a| a.failure.class)
    }

    /// The longest wait that a server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.attempts.iter().filter_map(|a| a.failure.retry_after).max()
    }

    /// The server to look for when the network is to be back.
    pub fn unreachable(&self) -> Option<&str> {
        let last = self.attempts.last()?;
        (last.failure.class == FailureClass::Network).then_some(last.at.as_str())
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attempts.is_empty() {
            return write!(f, "{}: hosts.toml names no server that may be asked for it", self.what);
        }
        write!(f, "{}: ", self.what)?;
        for (n, attempt) in self.attempts.iter().enumerate() {
            let then = if n == 0 { "" } else { "; then " };
            write!(f, "{then}{}: {}", attempt.at, attempt.failure.text)?;
        }
        Ok(())
    }
}

impl Error for RegistryError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry: Option<&str>) -> Failure {
        let mut headers = HeaderMap::new();
        if let Some(retry) = retry {
            headers.insert(header::RETRY_AFTER, retry.parse().unwrap());
        }
        Failure::status(StatusCode::from_u16(status).unwrap(), &headers, None)
    }

    #[test]
    fn every_status_has_its_class() {
        use FailureClass::{Auth, NotFound, RateLimit, Refused, Server};
        for (status, class) in [
            (401, Auth),
            (403, Auth),
            (404, NotFound),
            (429, RateLimit),
            (500, Server),
            (503, Server),
            (400, Refused),
        ] {
            assert_eq!(answer(status, None).class, class, "{status}");
        }
        assert_eq!(answer(404, None).text, "404 not found");
    }

    #[test]
    fn the_wait_that_a_server_asks_for_is_kept_and_bounded() {
        let wait = |text| answer(429, Some(text)).retry_after.map(|d| d.as_secs());
        assert_eq!(wait("7"), Some(7));
        assert_eq!(wait("99999"), Some(3600));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(0));
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn an_error_names_each_server_in_order() {
        let attempt = |at: &str, failure| Attempt { at: at.into(), failure };
        let e = RegistryError {
            what: "manifest 1".into(),
            attempts: vec![
                attempt("https://m", Failure::new(FailureClass::Network, "no route")),
                attempt("https://r", answer(404, None)),
            ],
        };
        assert_eq!(e.to_string(), "manifest 1: https://m: no route; then https://r: 404 not found");
        assert_eq!((e.class(), e.unreachable()), (FailureClass::NotFound, None));
    }
}
