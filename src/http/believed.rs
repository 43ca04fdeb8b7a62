//! Whose certificates are believed: those that an authority signed, and a server's own when it is named as one.

use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Believes what the roots sign, as the library does, and the roots themselves. The instructions of docker's registry
/// have people make one certificate that is its own authority, `openssl req -x509`, and Go takes it.
#[derive(Debug)]
pub(super) struct Believed {
    usual: Option<Arc<WebPkiServerVerifier>>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl Believed {
    pub(super) fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Self {
        let roots = Arc::new(roots);
        // Fails without any root; then nobody is believed.
        let usual = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build().ok();
        Self { usual, roots, provider }
    }

    /// Whether the certificate is one of the roots: one with the same name and key.
    fn is_root(&self, certificate: &CertificateDer<'_>) -> bool {
        webpki::anchor_from_trusted_cert(certificate).is_ok_and(|a| self.roots.roots.contains(&a))
    }
}

impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let usual = self.usual.as_ref().ok_or(unknown.clone())?;
        match usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // Said after the dates were found right and before the name is looked at.
            Err(e) if is_authority(&e) => {
                if !self.is_root(end_entity) {
                    return Err(unknown);
                }
                let certificate = webpki::EndEntityCert::try_from(end_entity);
                let certificate = certificate.map_err(|_| CertificateError::BadEncoding)?;
                let named = certificate.verify_is_valid_for_subject_name(server_name);
                named.map_err(|_| CertificateError::NotValidForName)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let supported = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, cert, dss, supported)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let supported = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, cert, dss, supported)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the server's own certificate was refused for being that of an authority.
fn is_authority(e: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = e else { return false };
    matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}
