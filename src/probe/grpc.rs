//! One health check over gRPC (`grpc.health.v1.Health/Check`), as `grpc` probes make it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, pki_types::ServerName};
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::AGENT;
use super::target::{authority, bare, connect};

const CHECK: PathAndQuery = PathAndQuery::from_static("/grpc.health.v1.Health/Check");

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthRequest {
    /// Which service; empty for the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// `HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthResponse {
    /// How it is.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// `HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// `UNKNOWN`.
    Unknown = 0,
    /// `SERVING`.
    Serving = 1,
    /// `NOT_SERVING`.
    NotServing = 2,
    /// `SERVICE_UNKNOWN`.
    ServiceUnknown = 3,
}

impl ServingStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// Asks whether `service` is serving; an error is a line for a person.
///
/// # Errors
/// Any other answer, none, and none within `limit`.
pub async fn check(
    hosts: &[String],
    port: u16,
    tls: bool,
    service: &str,
    limit: Duration,
) -> Result<(), String> {
    let address = authority(hosts.first().map_or("", String::as_str), port);
    let late = |what: &str| format!("timeout: {what} within {} s", limit.as_secs_f32());
    let connection = timeout(limit, open(hosts, port, tls, &address)).await;
    let channel = connection.map_err(|_| late(&format!("failed to connect service {address:?}")))??;
    match timeout(limit, ask(channel, service)).await {
        Err(_) => Err(late("health rpc did not complete")),
        Ok(Ok(ServingStatus::Serving)) => Ok(()),
        Ok(Ok(status)) => Err(format!("service unhealthy (responded with {:?})", status.name())),
        Ok(Err(e)) if e.code() == Code::Unimplemented => Err(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            e.message()
        )),
        Ok(Err(e)) => Err(format!("error: health rpc probe failed: {}: {}", e.code(), e.message())),
    }
}

async fn open(hosts: &[String], port: u16, tls: bool, address: &str) -> Result<Channel, String> {
    // Connected first, for an error in plain words.
    let (stream, host) = connect(hosts, port).await.map_err(|e| e.to_string())?;
    if !tls {
        return speak(stream, address).await;
    }
    let name = ServerName::try_from(bare(host).to_owned()).map_err(|_| format!("{host:?} is no name"))?;
    let stream = TlsConnector::from(tls_config()).connect(name, stream).await;
    speak(stream.map_err(|e| format!("TLS with {address:?}: {e}"))?, address).await
}

fn tls_config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let http2 = || {
        let mut config = ClientConfig::clone(&crate::http::tls::unverified());
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    CONFIG.get_or_init(http2).clone()
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: &str,
) -> Result<Channel, String> {
    let mut once = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = once.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)) }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).and_then(|e| e.user_agent(AGENT));
    let endpoint = endpoint.map_err(|_| format!("{address:?} is no address"))?;
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|e| format!("error: failed to connect service {address:?}: {e}"))
}

async fn ask(channel: Channel, service: &str) -> Result<ServingStatus, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let request = Request::new(HealthRequest { service: service.to_owned() });
    let codec = ProstCodec::<HealthRequest, HealthResponse>::default();
    let answer: HealthResponse = client.unary(request, CHECK, codec).await?.into_inner();
    Ok(answer.status())
}
