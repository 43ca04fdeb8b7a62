//! Connections: resolving, proxies, TLS, and a client that keeps what it opened for the next request.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::Uri;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, Response, header};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, ClientConfig, pki_types::ServerName};

use super::proxy::{Proxies, Proxy};
use super::tls::TlsOptions;

/// How long one address may take to answer.
const ADDRESS: Duration = Duration::from_secs(4);
/// How long a name, all its addresses and the handshake may take together.
const CONNECT: Duration = Duration::from_secs(15);
/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(20);
/// Most bytes of a proxy's answer to CONNECT.
const PROXY_ANSWER: usize = 8 << 10;

/// A client with one set of TLS settings.
pub struct HttpClient {
    pool: Client<Connector, Full<Bytes>>,
    proxies: Arc<Proxies>,
    /// A server closed a connection for want of a certificate. It says so only when the connection counts as made,
    /// and then the request's own error may not know.
    refused: Arc<AtomicBool>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The server does not know us.
    #[error(
        "it wants a client certificate, and none or a wrong one was shown; name the right one in hosts.toml (client)"
    )]
    Identity,
    /// Anything else.
    #[error(transparent)]
    Http(#[from] Error),
}

impl HttpClient {
    /// Sends a request on a connection that is open, or on a new one.
    pub async fn request(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        // A tunnel is asked for by the connector; without one each request has to please the proxy.
        if let Some(proxy) = self.proxies.of_plain(request.uri())
            && let Some(value) = proxy.authorization.as_ref().and_then(|a| a.parse().ok())
        {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, value);
        }
        let answer = self.pool.request(request).await;
        answer.map_err(|e| match self.refused.swap(false, Ordering::Relaxed) {
            true => RequestError::Identity,
            false => e.into(),
        })
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address, or nobody could be asked.
    #[error("cannot resolve {host}: {why}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        why: String,
    },
    /// No address answered.
    #[error("cannot connect to {to}: {why}")]
    Tcp {
        /// Host and port.
        to: String,
        /// What the system said.
        why: io::Error,
    },
    /// The other side is not believed, does not believe us, or does not speak TLS.
    #[error("TLS with {host} failed: {why}")]
    Tls {
        /// The name.
        host: String,
        /// What the library said.
        why: String,
    },
    /// The proxy would not.
    #[error("proxy {proxy} refused to connect to {to}: {why}")]
    Proxy {
        /// The proxy.
        proxy: String,
        /// Where to.
        to: String,
        /// Its answer.
        why: String,
    },
    /// It took too long.
    #[error("no connection to {to} within {after:?}")]
    Timeout {
        /// Host and port.
        to: String,
        /// The limit.
        after: Duration,
    },
    /// The address has no host.
    #[error("{0} is no address of a server")]
    Address(String),
}

/// How a server is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// TLS settings.
    pub tls: TlsOptions,
    /// How long a name and its addresses may take.
    pub dial_timeout: Option<Duration>,
    /// The proxy to use, whatever the environment says.
    pub proxy: Option<Proxy>,
}

/// A client that connects with `tls` and through `proxies`. `dial` limits how long a name and its addresses may
/// take, instead of the usual limits.
pub fn client(tls: Arc<ClientConfig>, proxies: Proxies, dial: Option<Duration>) -> HttpClient {
    let (proxies, refused) = (Arc::new(proxies), Arc::<AtomicBool>::default());
    let pool = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(4)
        .build(Connector { tls, proxies: proxies.clone(), dial, refused: refused.clone() });
    HttpClient { pool, proxies, refused }
}

/// Opens connections for [`HttpClient`].
#[derive(Clone)]
pub struct Connector {
    tls: Arc<ClientConfig>,
    proxies: Arc<Proxies>,
    dial: Option<Duration>,
    refused: Arc<AtomicBool>,
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let authority = uri.authority().map(|a| a.as_str()).unwrap_or_default();
            // A port that is none is not left out in silence.
            let bad_port = |host: &str| uri.port_u16().is_none() && authority.len() > host.len();
            let Some(host) = uri.host().filter(|host| !bad_port(host)) else {
                return Err(ConnectError::Address(authority.to_owned()));
            };
            let https = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
            let to = format!("{host}:{port}");
            let after = CONNECT + connector.dial.unwrap_or_default();
            let opened = timeout(after, connector.open(https, host, port)).await;
            opened.unwrap_or(Err(ConnectError::Timeout { to, after }))
        })
    }
}

impl Connector {
    async fn open(&self, https: bool, host: &str, port: u16) -> Result<Stream, ConnectError> {
        let Some(proxy) = self.proxies.of(https, host, port) else {
            let tcp: Io = Box::new(self.dial(host, port).await?);
            let io = if https { self.secure(tcp, host).await? } else { tcp };
            return Ok(self.stream(io, false));
        };
        let mut io: Io = Box::new(self.dial(&proxy.host, proxy.port).await?);
        if proxy.tls {
            io = self.secure(io, &proxy.host).await?;
        }
        if !https {
            return Ok(self.stream(io, true));
        }
        tunnel(&mut io, proxy, host, port).await?;
        Ok(self.stream(self.secure(io, host).await?, false))
    }

    fn stream(&self, io: Io, proxied: bool) -> Stream {
        Stream { io: TokioIo::new(io), proxied, refused: self.refused.clone() }
    }

    async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let Some(after) = self.dial else { return dial(host, port, ADDRESS).await };
        let to = format!("{host}:{port}");
        let opened = timeout(after, dial(host, port, after)).await;
        opened.unwrap_or(Err(ConnectError::Timeout { to, after }))
    }

    async fn secure(&self, io: Io, host: &str) -> Result<Io, ConnectError> {
        let failed = |why: String| ConnectError::Tls { host: host.to_owned(), why };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|e| failed(e.to_string()))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, io).await;
        Ok(Box::new(stream.map_err(|e| failed(tls_reason(&e)))?))
    }
}

/// The library's word for a failed handshake, with the remedy where there is one.
fn tls_reason(e: &io::Error) -> String {
    use rustls::{CertificateError as Certificate, Error, InvalidMessage};
    match e.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(Certificate::UnknownIssuer)) => {
            "its certificate is signed by an unknown authority; name the authority's file in hosts.toml (ca) or add it to the system's (package ca-certificates)"
                .to_owned()
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "it does not speak TLS; is it a plain http server?".to_owned()
        }
        Some(Error::AlertReceived(_)) if refuses_identity(e) => RequestError::Identity.to_string(),
        Some(e) => e.to_string(),
        None if e.kind() == io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        None => e.to_string(),
    }
}

/// Whether the server wants a client certificate, or another one than it got.
fn refuses_identity(e: &io::Error) -> bool {
    use rustls::{AlertDescription as Alert, Error};
    let alert = e.get_ref().and_then(|e| e.downcast_ref::<Error>());
    matches!(
        alert,
        Some(Error::AlertReceived(
            Alert::BadCertificate
                | Alert::CertificateRequired
                | Alert::UnknownCA
                | Alert::CertificateUnknown
                | Alert::UnsupportedCertificate
                | Alert::CertificateExpired
        ))
    )
}

async fn dial(host: &str, port: u16, address_limit: Duration) -> Result<TcpStream, ConnectError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let failed = |e: io::Error| ConnectError::Resolve { host: host.to_owned(), why: resolver_reason(&e) };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((bare, port)).await.map_err(failed)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(address_limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and answers are waited for.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(e)) => last = e,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(ConnectError::Tcp { to: format!("{host}:{port}"), why: last })
}

/// The resolver's own words, without the name of the C function they came from.
fn resolver_reason(e: &io::Error) -> String {
    let text = e.to_string();
    text.rsplit(": ").next().unwrap_or(&text).to_owned()
}

/// Asks the proxy for a tunnel (RFC 9110, 9.3.6).
async fn tunnel(io: &mut Io, proxy: &Proxy, host: &str, port: u16) -> Result<(), ConnectError> {
    let to = format!("{host}:{port}");
    let refused = |why: String| ConnectError::Proxy { proxy: proxy.to_string(), to: to.clone(), why };
    let authorization = proxy.authorization.as_ref();
    let authorization = authorization.map(|a| format!("Proxy-Authorization: {a}\r\n")).unwrap_or_default();
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n");
    io.write_all(request.as_bytes()).await.map_err(|e| refused(e.to_string()))?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the answer belongs to TLS.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() > PROXY_ANSWER {
            return Err(refused("its answer does not end".to_owned()));
        }
        answer.push(io.read_u8().await.map_err(|e| refused(e.to_string()))?);
    }
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default().to_owned();
    match line.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(refused(line)),
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

type Io = Box<dyn Duplex>;

/// An open connection.
pub struct Stream {
    io: TokioIo<Io>,
    /// Requests name the whole address, as a proxy wants it.
    proxied: bool,
    refused: Arc<AtomicBool>,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.proxied)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Poll::Ready(Err(e)) = &read
            && refuses_identity(e)
        {
            self.refused.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::net::TcpListener;

    fn test_client(proxies: Proxies) -> HttpClient {
        client(super::super::tls::unverified(), proxies, None)
    }

    fn get(url: &str) -> hyper::Request<Full<Bytes>> {
        hyper::Request::get(url).body(Full::default()).unwrap()
    }

    /// The connector's own error in what the client returns.
    fn cause(e: &RequestError) -> &ConnectError {
        std::error::Error::source(e).and_then(|e| e.downcast_ref()).unwrap()
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        drop(listener);
        let e = test_client(Proxies::default()).request(get(&format!("http://{to}/"))).await.unwrap_err();
        assert!(matches!(cause(&e), ConnectError::Tcp { .. }));
        assert!(cause(&e).to_string().starts_with(&format!("cannot connect to {to}: ")));
    }

    #[tokio::test]
    async fn a_port_that_is_none_is_not_another_one() {
        let e = test_client(Proxies::default()).request(get("http://127.0.0.1:99999/")).await.unwrap_err();
        assert_eq!(cause(&e).to_string(), "127.0.0.1:99999 is no address of a server");
    }

    #[tokio::test]
    async fn tls_with_a_plain_server_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 16];
            let _ = stream.read(&mut hello).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.shutdown().await;
        });
        let e = test_client(Proxies::default()).request(get(&format!("https://{to}/"))).await.unwrap_err();
        assert_eq!(
            cause(&e).to_string(),
            "TLS with 127.0.0.1 failed: it does not speak TLS; is it a plain http server?"
        );
    }

    #[tokio::test]
    async fn a_tunnel_that_the_proxy_refuses_tells_the_proxys_answer() {
        let (near, mut far) = tokio::io::duplex(1024);
        let proxy = Proxy { host: "p".into(), port: 1, tls: false, authorization: Some("Basic eA==".into()) };
        let answer = tokio::spawn(async move {
            let mut request = vec![0; 1024];
            let n = far.read(&mut request).await.unwrap();
            far.write_all(b"HTTP/1.1 407 Who are you\r\n\r\n").await.unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        let mut io: Io = Box::new(near);
        let e = tunnel(&mut io, &proxy, "a.io", 443).await.unwrap_err();
        assert_eq!(e.to_string(), "proxy p:1 refused to connect to a.io:443: HTTP/1.1 407 Who are you");
        let request = answer.await.unwrap();
        assert!(request.starts_with("CONNECT a.io:443 HTTP/1.1\r\nHost: a.io:443\r\n"), "{request}");
        assert!(request.ends_with("Proxy-Authorization: Basic eA==\r\n\r\n"), "{request}");
    }

    #[tokio::test]
    async fn requests_go_out_and_answers_come_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
        });
        let answer = test_client(Proxies::default()).request(get(&format!("http://{to}/"))).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hi");
    }
}
