//! HTTP and HTTPS towards the world outside: TLS settings, proxies from the environment, and a client that
//! keeps its connections. Registries and HTTPS probes use it; nothing here knows what is fetched.

mod believed;
pub mod connect;
mod identity;
pub mod proxy;
pub mod tls;
