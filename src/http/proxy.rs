//! Proxies, as the environment names them: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in capitals or not.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;

/// Which proxy a connection goes through.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    except: Vec<Exception>,
    /// One that is named for a server, and then used whatever the environment says.
    fixed: Option<Proxy>,
}

/// A proxy. Its `Debug` and `Display` show no credential.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// True when the proxy itself is spoken to by TLS.
    pub tls: bool,
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    All,
    Host { name: String, port: Option<u16> },
    Below { suffix: String, port: Option<u16> },
    Net { address: IpAddr, bits: u8 },
    Address { address: IpAddr, port: u16 },
}

impl Proxies {
    /// What this process's environment says. A value that is no proxy is passed over with a warning.
    pub fn from_env() -> Self {
        let get = |name: &str| {
            let value = std::env::var(name).or_else(|_| std::env::var(name.to_ascii_lowercase()));
            value.ok().filter(|v| !v.is_empty())
        };
        Self::new(get("HTTP_PROXY").as_deref(), get("HTTPS_PROXY").as_deref(), get("NO_PROXY").as_deref())
    }

    fn new(http: Option<&str>, https: Option<&str>, except: Option<&str>) -> Self {
        let read = |name: &str, value: Option<&str>| {
            let proxy = parse(value?);
            if proxy.is_none() {
                tracing::warn!(
                    "{name} is not the address of an HTTP proxy such as http://proxy:3128; it is not used"
                );
            }
            proxy
        };
        Self {
            http: read("HTTP_PROXY", http),
            https: read("HTTPS_PROXY", https),
            except: except.unwrap_or_default().split(',').filter_map(exception).collect(),
            fixed: None,
        }
    }

    /// This one for every connection.
    pub fn fixed(proxy: Proxy) -> Self {
        Self { fixed: Some(proxy), ..Self::default() }
    }

    /// The proxy that a plain request is sent to as a whole.
    pub(super) fn of_plain(&self, uri: &Uri) -> Option<&Proxy> {
        (uri.scheme_str() == Some("http")).then_some(())?;
        self.of(false, uri.host()?, uri.port_u16().unwrap_or(80))
    }

    /// The proxy for a connection to `host`. The environment's is never for the loopback.
    pub fn of(&self, tls: bool, host: &str, port: u16) -> Option<&Proxy> {
        if self.fixed.is_some() {
            return self.fixed.as_ref();
        }
        let proxy = if tls { self.https.as_ref() } else { self.http.as_ref() }?;
        let name = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = name.parse().ok();
        if name == "localhost" || address.is_some_and(|a| a.is_loopback()) {
            return None;
        }
        (!self.except.iter().any(|e| e.holds(&name, address, port))).then_some(proxy)
    }
}

impl Exception {
    fn holds(&self, name: &str, address: Option<IpAddr>, port: u16) -> bool {
        let on = |p: &Option<u16>| p.is_none_or(|p| p == port);
        match self {
            Self::All => true,
            Self::Host { name: n, port: p } => {
                let below = name.strip_suffix(n.as_str()).is_some_and(|rest| rest.ends_with('.'));
                (n == name || below) && on(p)
            }
            Self::Below { suffix, port: p } => name.ends_with(suffix.as_str()) && on(p),
            Self::Address { address: own, port: p } => address == Some(*own) && *p == port,
            Self::Net { address: net, bits } => address.is_some_and(|a| within(a, *net, *bits)),
        }
    }
}

fn within(address: IpAddr, net: IpAddr, bits: u8) -> bool {
    match (address, net) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let shift = 32 - u32::from(bits.min(32));
            u64::from(a.to_bits()) >> shift == u64::from(n.to_bits()) >> shift
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            let shift = 128 - u32::from(bits.min(128));
            a.to_bits().checked_shr(shift) == n.to_bits().checked_shr(shift)
        }
        _ => false,
    }
}

/// `example.com` is that host and those below it, `.example.com` only those below it, as in Go.
fn exception(text: &str) -> Option<Exception> {
    let text = text.trim().to_ascii_lowercase();
    if text == "*" {
        return Some(Exception::All);
    }
    if let Some((net, bits)) = text.split_once('/') {
        return Some(Exception::Net { address: net.parse().ok()?, bits: bits.parse().ok()? });
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        return Some(Exception::Net { address, bits });
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(Exception::Address { address: address.ip(), port: address.port() });
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name.to_owned(), Some(port.parse().ok()?)),
        None => (text, None),
    };
    match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(rest) => Some(Exception::Below { suffix: format!(".{rest}"), port }),
        None if name.is_empty() => None,
        None => Some(Exception::Host { name, port }),
    }
}

/// Reads `http://name:password@proxy:3128` and shorter forms; none when it is not the address of an HTTP proxy.
pub fn parse(text: &str) -> Option<Proxy> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().ok()?;
    let tls = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let authority = uri.authority().filter(|a| !a.host().is_empty())?;
    let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
    let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(percent_decoded(user))));
    let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Some(Proxy { host: authority.host().to_owned(), port, tls, authorization })
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let byte = code.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(proxies: &Proxies, tls: bool, host: &str) -> Option<String> {
        proxies.of(tls, host, if tls { 443 } else { 80 }).map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_proxy_and_the_loopback_has_none() {
        let proxies = Proxies::new(Some("plain:3128"), Some("http://tls.example:8080/"), None);
        assert_eq!(chosen(&proxies, false, "a.io").as_deref(), Some("plain:3128"));
        assert_eq!(chosen(&proxies, true, "a.io").as_deref(), Some("tls.example:8080"));
        for local in ["localhost", "127.0.0.1", "127.9.0.1", "[::1]"] {
            assert_eq!(chosen(&proxies, true, local), None, "{local}");
        }
        assert_eq!(chosen(&Proxies::new(None, Some("socks5://x:1"), None), true, "a.io"), None);
    }

    #[test]
    fn no_proxy_takes_hosts_domains_networks_and_ports() {
        let except = "host.io, .below.io,*.star.io,10.0.0.0/8,192.0.2.7,fd00::/8,ported.io:5000,\
                      192.0.2.9:5000,[fe80::2]:5000";
        let proxies = Proxies::new(None, Some("p:1"), Some(except));
        for direct in [
            "host.io",
            "HOST.io.",
            "sub.host.io",
            "a.below.io",
            "a.star.io",
            "10.9.8.7",
            "192.0.2.7",
            "[fd12::1]",
        ] {
            assert_eq!(chosen(&proxies, true, direct), None, "{direct}");
        }
        for through in ["below.io", "xhost.io", "11.0.0.1", "192.0.2.8", "[fe80::1]", "ported.io"] {
            assert!(chosen(&proxies, true, through).is_some(), "{through}");
        }
        for direct in ["ported.io", "192.0.2.9", "[fe80::2]"] {
            assert!(proxies.of(true, direct, 5000).is_none(), "{direct}");
            assert!(proxies.of(true, direct, 443).is_some(), "{direct}");
        }
        assert!(Proxies::new(None, Some("p:1"), Some("*")).of(true, "a.io", 443).is_none());
    }

    #[test]
    fn a_proxy_that_is_named_for_a_server_is_used_for_every_address() {
        let proxies = Proxies::fixed(parse("http://me:p@p:1").unwrap());
        assert_eq!(chosen(&proxies, true, "localhost").as_deref(), Some("p:1"));
        let plain: Uri = "http://reg.io/v2/".parse().unwrap();
        assert_eq!(proxies.of_plain(&plain).unwrap().authorization.as_deref(), Some("Basic bWU6cA=="));
        assert!(proxies.of_plain(&"https://reg.io/v2/".parse().unwrap()).is_none());
    }

    #[test]
    fn a_proxys_password_is_sent_and_never_shown() {
        let proxy = parse("https://me:p%40ss@proxy.example").unwrap();
        assert_eq!((proxy.port, proxy.tls), (443, true));
        assert_eq!(proxy.authorization.as_deref(), Some("Basic bWU6cEBzcw=="));
        assert_eq!(format!("{proxy} {proxy:?}"), "proxy.example:443 Proxy(proxy.example:443)");
    }
}
