//! TLS settings: which authorities are believed, which certificate is shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    self, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::believed::Believed;
use super::identity::Identities;

/// What a connection believes and shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Files with certificates of authorities, believed beside the system's.
    pub authorities: Vec<PathBuf>,
    /// Certificate chains and their keys to show to the server, of which it gets one: two files, or one that holds
    /// both.
    pub identities: Vec<(PathBuf, PathBuf)>,
    /// Believe anybody.
    pub skip_verify: bool,
}

/// Why TLS cannot be set up. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("cannot read {what} {path}: {why}")]
    File {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and key do not belong together, or the like.
    #[error("cannot use certificate {path}: {why}")]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// What the library said.
        why: rustls::Error,
    },
}

/// Settings that believe the system's authorities and those of `options`. Reads files, so it blocks; the
/// system's authorities take about 0.3 MB, which go with the value.
pub fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier: Arc<dyn ServerCertVerifier> = match options.skip_verify {
        true => Arc::new(Anybody::new()),
        false => Arc::new(Believed::new(authorities(&options.authorities)?, provider())),
    };
    let builder = builder().dangerous().with_custom_certificate_verifier(verifier);
    if options.identities.is_empty() {
        return Ok(Arc::new(builder.with_no_client_auth()));
    }
    let read: Result<_, TlsError> = options.identities.iter().map(|(c, k)| identity(c, k)).collect();
    Ok(Arc::new(builder.with_client_cert_resolver(Arc::new(Identities(read?)))))
}

fn identity(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let certificates = certificates(chain)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| file("key", key, e))?;
    let wrong = |why| TlsError::Identity { path: chain.to_owned(), why };
    let pair = CertifiedKey::new(certificates, provider().key_provider.load_private_key(key).map_err(wrong)?);
    match pair.keys_match() {
        Err(why @ rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => Err(wrong(why)),
        // Of an old certificate the library cannot tell. The server will.
        _ => Ok(Arc::new(pair)),
    }
}

/// Settings that believe any server: HTTPS probes, and registries with `skip_verify`.
pub fn unverified() -> Arc<ClientConfig> {
    let anybody = Arc::new(Anybody::new());
    let builder = builder().dangerous().with_custom_certificate_verifier(anybody);
    Arc::new(builder.with_no_client_auth())
}

fn builder() -> ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    #[expect(clippy::expect_used, reason = "fails only for a provider without the library's own versions")]
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring offers TLS 1.2 and 1.3")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn authorities(own: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    // A system store often holds a few that the library does not take; the others count.
    store.add_parsable_certificates(system.certs);
    for path in own {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|e| file("certificate", path, e))?;
        }
    }
    // Empty where ca-certificates is not installed: then no server is believed, and plain http goes on.
    Ok(store)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |e| file("certificate", path, e);
    let read = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|e| file("certificate", path, e))?;
    if all.is_empty() {
        return Err(file("certificate", path, "it holds no PEM certificate"));
    }
    Ok(all)
}

fn file(what: &'static str, path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File { what, path: path.to_owned(), why: why.to_string() }
}

/// Believes any certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl Anybody {
    fn new() -> Self {
        Self(provider())
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    // Whose key signed does not matter where anybody is believed; and old or odd certificates, which the
    // library cannot read, are what such servers have.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_file_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        std::fs::write(&path, "hello").unwrap();
        let options = TlsOptions { authorities: vec![path.clone()], ..TlsOptions::default() };
        let e = config(&options).unwrap_err().to_string();
        assert_eq!(e, format!("cannot read certificate {}: it holds no PEM certificate", path.display()));
        let options = TlsOptions { authorities: vec![dir.path().join("none")], ..TlsOptions::default() };
        assert!(config(&options).unwrap_err().to_string().starts_with("cannot read certificate "));
    }

    #[test]
    fn believing_anybody_needs_no_authorities() {
        let options = TlsOptions { skip_verify: true, ..TlsOptions::default() };
        assert!(config(&options).is_ok());
        assert_eq!(unverified().alpn_protocols.len(), 0);
    }
}
