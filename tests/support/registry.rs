//! Registries for the scenarios: Debian's docker-registry in an instance's network namespace, and a proxy before
//! it that breaks answers on request.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::faults::{Faults, Served, loopback, serve};
use super::host::NetNs;
use super::image::Image;

/// How a [`Registry`] is set up.
#[derive(Clone, Copy, Default)]
pub struct Setup {
    /// Port on the loopback; 0 means 5000.
    pub port: u16,
    /// Speak TLS with a certificate of the test's own authority.
    pub tls: bool,
    /// Ask for the user `me` with the password `secret-word`.
    pub password: bool,
    /// Ask for a client certificate, as `client.crt` with `client.key` and `client.pem` beside the authority's are.
    pub client: bool,
    /// The certificate is its own authority, as the instructions of docker's registry make it.
    pub own: bool,
}

/// A registry that runs until it is dropped.
pub struct Registry {
    child: Child,
    dir: tempfile::TempDir,
    setup: Setup,
}

impl Registry {
    /// Without TLS and passwords, on port 5000.
    pub fn start(net: &NetNs) -> Self {
        Self::with(net, Setup::default())
    }

    pub fn with(net: &NetNs, mut setup: Setup) -> Self {
        if setup.port == 0 {
            setup.port = 5000;
        }
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let mut config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  \
             delete: {{enabled: true}}\nhttp:\n  addr: 127.0.0.1:{}\n",
            at("store"),
            setup.port
        );
        if setup.tls {
            if setup.own {
                own_authority(dir.path());
            } else {
                authority(dir.path());
            }
            let clients =
                if setup.client { format!(", clientcas: [{}]", at("ca.crt")) } else { String::new() };
            config += &format!(
                "  tls: {{certificate: {}, key: {}{clients}}}\n",
                at("server.crt"),
                at("server.key")
            );
        }
        if setup.password {
            let out = run(Command::new("htpasswd").args(["-nbB", "me", "secret-word"]));
            fs::write(dir.path().join("htpasswd"), out).expect("writable");
            config += &format!("auth:\n  htpasswd: {{realm: test, path: {}}}\n", at("htpasswd"));
        }
        fs::write(dir.path().join("config.yml"), config).expect("writable");
        let log = fs::File::create(dir.path().join("log")).expect("writable");
        let mut command = net.command("docker-registry");
        command.arg("serve").arg(dir.path().join("config.yml"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("duplicated")).stderr(log);
        let child = command.spawn().expect("docker-registry is installed (make deps)");
        let registry = Self { child, dir, setup };
        registry.wait(net);
        registry
    }

    fn wait(&self, net: &NetNs) {
        for _ in 0..400 {
            let list = net.command("ss").args(["-ltn"]).output().expect("ss, from iproute2, runs");
            if String::from_utf8_lossy(&list.stdout).contains(&format!("127.0.0.1:{} ", self.setup.port)) {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!(
            "docker-registry does not listen:\n{}",
            fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
        );
    }

    /// `127.0.0.1:5000`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.setup.port)
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// A file of the registry's directory, such as `client.pem`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Pushes an image with skopeo, as `name` such as `app:1`; the manifest's digest.
    pub fn push(&self, net: &NetNs, image: &Image, name: &str) -> String {
        let archive = self.dir.path().join("push.tar");
        fs::write(&archive, image.archive()).expect("writable");
        self.push_from(net, &format!("oci-archive:{}", archive.display()), name, &[])
    }

    /// Pushes what skopeo calls `source`.
    pub fn push_from(&self, net: &NetNs, source: &str, name: &str, options: &[&str]) -> String {
        let digest = self.dir.path().join("digest");
        let mut skopeo = net.command("skopeo");
        skopeo
            .args(["copy", "--quiet", "--dest-tls-verify=false", "--digestfile"])
            .arg(&digest)
            .args(options);
        if self.setup.client {
            let certificates = self.dir.path().join("push-certs");
            fs::create_dir_all(&certificates).expect("writable");
            for (from, to) in
                [("ca.crt", "ca.crt"), ("client.crt", "client.cert"), ("client.key", "client.key")]
            {
                fs::copy(self.dir.path().join(from), certificates.join(to)).expect("writable");
            }
            skopeo.arg("--dest-cert-dir").arg(certificates);
        }
        if self.setup.password {
            skopeo.args(["--dest-creds", "me:secret-word"]);
        }
        run(skopeo.arg(source).arg(format!("docker://{}/{name}", self.host())));
        fs::read_to_string(digest).expect("skopeo wrote the digest").trim().to_owned()
    }

    /// Ends it; its content stays for [`Registry::resume`].
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again with what it had.
    pub fn resume(&mut self, net: &NetNs) {
        let mut command = net.command("docker-registry");
        command.arg("serve").arg(self.dir.path().join("config.yml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = command.spawn().expect("docker-registry is installed");
        self.wait(net);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a command that must succeed; its output.
pub fn run(command: &mut Command) -> Vec<u8> {
    let out = command.stdin(Stdio::null()).output().expect("the program is installed (make deps)");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// A server's certificate that is its own authority.
fn own_authority(dir: &Path) {
    let script = "openssl req -x509 -newkey rsa:2048 -sha256 -nodes -keyout server.key -out server.crt -days 2 \
            -subj '/CN=localhost' -addext 'subjectAltName = DNS:reg.test, IP:127.0.0.1'; cp server.crt ca.crt";
    run(Command::new("sh").args(["-ec", script]).current_dir(dir));
}

/// An authority and the certificates of a server and a client signed by it: `ca.crt`, `server.crt`, `server.key`,
/// `client.pem`. And `stranger.pem`, whom nobody knows.
fn authority(dir: &Path) {
    let script = "set -e
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt \
            -days 2 -subj '/CN=test authority' -addext basicConstraints=critical,CA:TRUE
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj '/CN=localhost'
        printf 'subjectAltName=DNS:localhost,DNS:reg.test,IP:127.0.0.1\\nbasicConstraints=CA:FALSE\\n' > ext
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile ext
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout client.key -out client.csr -subj '/CN=client'
        openssl x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out client.crt -days 2
        cat client.crt client.key > client.pem
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout x.key -out x.crt -days 2 -subj '/CN=stranger'
        cat x.crt x.key > stranger.pem";
    run(Command::new("sh").args(["-c", script]).current_dir(dir));
}

/// What a [`FaultyRegistry`] does to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status, with a Retry-After of so many seconds when there is one.
    Status(u16, Option<u64>),
    /// The first so many bytes of the answer's body, then the connection ends.
    Cut(usize),
    /// The body with its first byte changed.
    Corrupt,
    /// The answer so much later.
    Delay(Duration),
}

/// A proxy before a registry, on a port of its own in the same network namespace; it ends when dropped. It notes
/// requests as `GET /v2/app/manifests/1 range=… authorization=…`.
pub struct FaultyRegistry {
    faults: Faults<Fault>,
    _served: Served,
}

impl FaultyRegistry {
    /// Listens on `port` and forwards to the plain registry on `upstream`.
    pub fn start(net: &NetNs, port: u16, upstream: u16) -> Self {
        let faults = Faults::default();
        let rules = faults.clone();
        let served = serve(
            Some(net),
            move || loopback(port),
            move |listener| {
                each(listener, move |stream| {
                    let faults = rules.clone();
                    let answer = service_fn(move |request| forward(request, faults.clone(), upstream));
                    async move {
                        let builder = hyper::server::conn::http1::Builder::new();
                        let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
                    }
                })
            },
        );
        Self { faults, _served: served }
    }
}

impl Deref for FaultyRegistry {
    type Target = Faults<Fault>;
    fn deref(&self) -> &Self::Target {
        &self.faults
    }
}

/// Serves each connection in a task of its own.
async fn each<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> F,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(serve(stream));
    }
}

/// An HTTP proxy that takes CONNECT, whatever host it is for, to one port of the loopback. It ends when dropped.
pub struct ConnectProxy {
    heads: Arc<Mutex<Vec<String>>>,
    _served: Served,
}

impl ConnectProxy {
    /// Listens on `port` and connects to `to`.
    pub fn start(net: &NetNs, port: u16, to: u16) -> Self {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        let served = serve(
            Some(net),
            move || loopback(port),
            move |listener| {
                each(listener, move |stream| {
                    let heads = kept.clone();
                    async move {
                        let _ = tunnel(stream, to, heads).await;
                    }
                })
            },
        );
        Self { heads, _served: served }
    }

    /// The heads of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.heads.lock().expect("unpoisoned").clone()
    }
}

async fn tunnel(mut near: TcpStream, to: u16, heads: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await.ok()?);
    }
    heads.lock().expect("unpoisoned").push(String::from_utf8_lossy(&head).into_owned());
    let mut far = TcpStream::connect(("127.0.0.1", to)).await.ok()?;
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok()?;
    Some(())
}

type Answer = Result<Response<http_body_util::combinators::BoxBody<Bytes, std::io::Error>>, std::io::Error>;

async fn forward(request: Request<Incoming>, faults: Faults<Fault>, upstream: u16) -> Answer {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|v| v.to_str().ok());
        value.map(|v| format!(" {name}={v}")).unwrap_or_default()
    };
    let path = request.uri().to_string();
    let line = format!("{} {path}{}{}", request.method(), header("range"), header("authorization"));
    let fault = faults.meets(line, |part| path.contains(part));
    if let Some(Fault::Delay(wait)) = fault {
        tokio::time::sleep(wait).await;
    }
    if let Some(Fault::Status(status, retry)) = fault {
        let mut answer = Response::new(Full::new(Bytes::new()).map_err(|e| match e {}).boxed());
        *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
        if let Some(retry) = retry {
            answer.headers_mut().insert("retry-after", retry.into());
        }
        return Ok(answer);
    }
    let io = |e: hyper::Error| std::io::Error::other(e);
    let stream = TcpStream::connect(("127.0.0.1", upstream)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io)?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(io)?;
    let (parts, body) = answer.into_parts();
    match fault {
        Some(Fault::Cut(bytes)) => {
            let data = body.collect().await.map_err(io)?.to_bytes();
            let short = data.slice(..bytes.min(data.len()));
            let (sender, receiver) = tokio::sync::mpsc::channel(2);
            tokio::spawn(async move {
                let _ = sender.send(Ok(hyper::body::Frame::data(short))).await;
                // What was sent is on its way before the connection ends.
                tokio::time::sleep(Duration::from_millis(200)).await;
                let _ = sender.send(Err(std::io::Error::other("cut"))).await;
            });
            let stream = tonic::codegen::tokio_stream::wrappers::ReceiverStream::new(receiver);
            Ok(Response::from_parts(parts, BodyExt::boxed(http_body_util::StreamBody::new(stream))))
        }
        Some(Fault::Corrupt) => {
            let mut data = body.collect().await.map_err(io)?.to_bytes().to_vec();
            data.first_mut().into_iter().for_each(|b| *b ^= 0xff);
            Ok(Response::from_parts(parts, Full::new(Bytes::from(data)).map_err(|e| match e {}).boxed()))
        }
        _ => Ok(Response::from_parts(parts, body.map_err(io).boxed())),
    }
}
