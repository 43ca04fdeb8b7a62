//! Exec: a command in a container over one upgraded connection, see [`frame`](super::frame).
//!
//! Each direction holds at most a few frames, so a slow client slows the command and nothing else. A
//! client that goes away, or a stop of podling, kills the command.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Parts};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::access::{AccessError, BoxFuture, ExecRequest, ExecStreams, TerminalSize};
use super::frame::{CHUNK, ExecFrame, PROTOCOL};
use super::pods::{find, pick_container};
use super::query::Query;
use super::reply::{Answer, Body, Refusal};
use super::routes::Routes;
use crate::manifest::PodKey;

/// Frames that wait for the client.
const QUEUE: usize = 4;
/// How often a client is looked after while its input waits for the command to read.
const HANGUP_CHECK: Duration = Duration::from_millis(500);
/// After the command's end, output of what it left behind is awaited this long without news.
const LINGER: Duration = Duration::from_millis(200);

/// `POST …/pods/{name}/exec?container=&command=&command=&stdin=&tty=&columns=&rows=`.
pub(super) async fn start(
    routes: &Routes,
    key: &PodKey,
    query: &Query,
    mut request: Request<Incoming>,
) -> Answer {
    let asked = request.headers().get(UPGRADE).is_some_and(|v| v.as_bytes() == PROTOCOL.as_bytes());
    if !asked {
        return Err(Refusal::bad_request(format!("exec needs `Upgrade: {PROTOCOL}`")));
    }
    let view = find(routes, key)?;
    let command: Vec<String> = query.all("command").map(str::to_owned).collect();
    if command.is_empty() {
        return Err(Refusal::bad_request("command: a command to run is needed"));
    }
    let cancel = routes.shutdown.child_token();
    let exec = ExecRequest {
        pod: key.clone(),
        uid: view.uid.clone(),
        container: pick_container(&view, query)?,
        command,
        tty: query.flag("tty"),
        stdin: query.flag("stdin"),
        size: size(query),
        cancel: cancel.clone(),
    };
    // Until a session owns it, every way out kills the command.
    let guard = cancel.clone().drop_guard();
    let upgrade = hyper::upgrade::on(&mut request);
    let streams = routes.backend.runtime.exec(exec).await?;
    guard.disarm();
    tokio::spawn(async move {
        let _guard = cancel.clone().drop_guard();
        if let Err(error) = session(upgrade, streams, cancel).await {
            tracing::debug!(%error, "an exec session ended early");
        }
    });
    Ok(switching())
}

fn size(query: &Query) -> Option<TerminalSize> {
    let number = |name| query.get(name)?.parse().ok();
    Some(TerminalSize { columns: number("columns")?, rows: number("rows")? })
}

fn switching() -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    response
}

async fn session(upgrade: OnUpgrade, streams: ExecStreams, cancel: CancellationToken) -> io::Result<()> {
    let upgraded = upgrade.await.map_err(io::Error::other)?;
    let Parts { io, read_buf, .. } = upgraded
        .downcast::<TokioIo<UnixStream>>()
        .map_err(|_| io::Error::other("the connection is no unix socket"))?;
    let (reader, writer) = io.into_inner().into_split();
    let (frames, queue) = mpsc::channel(QUEUE);
    let done = CancellationToken::new();
    let ExecStreams { stdin, stdout, stderr, resize, exit } = streams;
    let stderr = stderr.unwrap_or_else(|| Box::new(tokio::io::empty()));
    let input = input(reader, read_buf, stdin, resize, cancel.clone());
    let output = async move {
        let (_, _, last) = tokio::join!(
            pump(stdout, ExecFrame::Stdout, &frames, &done),
            pump(stderr, ExecFrame::Stderr, &frames, &done),
            ended(exit, &done),
        );
        let _ = frames.send(last.encode()).await;
    };
    let answer = async { tokio::join!(output, write(writer, queue)).1 };
    tokio::pin!(answer);
    tokio::select! {
        result = &mut answer => result,
        // The client is gone: what is left has nobody to be told to, but is given time to be killed.
        () = input => {
            cancel.cancel();
            Err(io::Error::from(io::ErrorKind::ConnectionAborted))
        }
        () = cancel.cancelled() => {
            // podling stops: the command is being killed, and its client may yet hear of that.
            timeout(Duration::from_millis(500), answer).await.unwrap_or(Ok(()))
        }
    }
}

/// Carries the client's frames to the command; returns when the client is gone.
async fn input(
    reader: OwnedReadHalf,
    early: Bytes,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: mpsc::Sender<TerminalSize>,
    cancel: CancellationToken,
) {
    let mut frames = BufReader::with_capacity(CHUNK, io::Cursor::new(early).chain(reader));
    while let Ok(Some(frame)) = ExecFrame::read(&mut frames).await {
        match frame {
            ExecFrame::Stdin(data) => {
                let Some(sink) = stdin.as_mut() else { continue };
                let reader = frames.get_ref().get_ref().1;
                match feed(sink, &data, reader).await {
                    Fed::Written => {}
                    // It closed its input; its output may still be wanted.
                    Fed::Closed => stdin = None,
                    Fed::ClientGone => return,
                }
            }
            ExecFrame::StdinEnd => {
                if let Some(mut sink) = stdin.take() {
                    let _ = sink.shutdown().await;
                }
            }
            ExecFrame::Resize(size) => {
                let _ = resize.try_send(size);
            }
            _ => {
                cancel.cancel();
                return;
            }
        }
    }
}

enum Fed {
    Written,
    Closed,
    ClientGone,
}

/// Writes to the command's input. While that waits nothing is read from the client, so its going away
/// would pass unseen; it is asked for from time to time.
async fn feed(sink: &mut (impl AsyncWrite + Unpin), data: &[u8], client: &OwnedReadHalf) -> Fed {
    let write = async {
        sink.write_all(data).await?;
        sink.flush().await
    };
    tokio::pin!(write);
    loop {
        tokio::select! {
            result = &mut write => return if result.is_ok() { Fed::Written } else { Fed::Closed },
            () = sleep(HANGUP_CHECK) => if hung_up(client.as_ref()) { return Fed::ClientGone },
        }
    }
}

fn hung_up(stream: &UnixStream) -> bool {
    let fd = stream.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Carries one output stream to the client, to its end or, after the command's, until it falls silent.
async fn pump(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    frame: fn(Bytes) -> ExecFrame,
    to: &mpsc::Sender<Bytes>,
    done: &CancellationToken,
) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let silence = async {
            done.cancelled().await;
            sleep(LINGER).await;
        };
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            () = silence => return,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                let data = Bytes::copy_from_slice(&buffer[..n]);
                if to.send(frame(data).encode()).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn ended(exit: BoxFuture<'static, Result<i32, AccessError>>, done: &CancellationToken) -> ExecFrame {
    let last = match exit.await {
        Ok(code) => ExecFrame::Exit(code),
        Err(error) => ExecFrame::Error(error.to_string()),
    };
    done.cancel();
    last
}

async fn write(mut writer: OwnedWriteHalf, mut queue: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        writer.write_all(&frame).await?;
    }
    writer.shutdown().await
}
