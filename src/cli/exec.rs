//! `podling exec`: a command in a container, on this terminal or in a pipe.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::args::{Exec, pod_name};
use super::client::Client;
use super::error::{CliError, say};
use super::{Outcome, logs};
use crate::server::TerminalSize;
use crate::server::frame::{CHUNK, ExecFrame};
use crate::server::query::Query;

pub(super) async fn exec(client: Client, namespace: String, args: Exec) -> Outcome {
    let name = pod_name(&args.pod)?;
    let path = Client::pod_path(&namespace, name);
    let pod: Pod = client.get(&path, &Query::default()).await?;
    let mut query = Query::default();
    query.add("container", logs::pick(&pod, args.container.as_deref()));
    for word in &args.command {
        query.add("command", word);
    }
    if args.stdin {
        query.add("stdin", 1);
    }
    let terminal = args.tty && args.stdin && std::io::stdin().is_terminal();
    if args.tty && args.stdin && !terminal {
        say("Unable to use a TTY - input is not a terminal or the right kind of file");
    }
    // As with kubectl, `-t` without a terminal on this side gives the command none either.
    let tty = args.tty && (terminal || !args.stdin);
    if tty {
        query.add("tty", 1);
        if let Some(size) = terminal_size() {
            query.add("columns", size.columns).add("rows", size.rows);
        }
    }
    let connection = client.upgrade(&query.on(&format!("{path}/exec"))).await?;
    let raw = terminal.then(RawTerminal::enter).transpose()?;
    let last = session(connection, args.stdin, tty).await;
    drop(raw);
    match last? {
        Ok(0) => Ok(ExitCode::SUCCESS),
        Ok(code) => {
            say(&format!("command terminated with exit code {code}"));
            // A shell sees only the low eight bits of any exit code, too.
            Ok(ExitCode::from((code & 0xff) as u8))
        }
        Err(text) => Err(CliError::Failed(text)),
    }
}

type Last = Result<i32, String>;

async fn session(
    connection: impl tokio::io::AsyncRead + tokio::io::AsyncWrite,
    stdin: bool,
    tty: bool,
) -> Result<Last, CliError> {
    let (reader, mut writer) = tokio::io::split(connection);
    let (frames, mut queue) = mpsc::channel::<ExecFrame>(2);
    if stdin {
        let frames = frames.clone();
        std::thread::spawn(move || read_stdin(&frames));
    }
    if tty {
        watch_size(frames.clone());
    }
    drop(frames);
    let send = async {
        while let Some(frame) = queue.recv().await {
            if writer.write_all(&frame.encode()).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    };
    let receive = receive(BufReader::with_capacity(CHUNK, reader));
    tokio::pin!(receive);
    // The end of the input is not the end of the command, and a command that ends waits for no input.
    tokio::select! {
        last = &mut receive => last,
        () = send => receive.await,
    }
}

async fn receive(mut reader: impl tokio::io::AsyncRead + Unpin) -> Result<Last, CliError> {
    loop {
        match ExecFrame::read(&mut reader).await {
            Ok(Some(ExecFrame::Stdout(data))) => {
                let mut out = std::io::stdout().lock();
                out.write_all(&data)?;
                out.flush()?;
            }
            Ok(Some(ExecFrame::Stderr(data))) => std::io::stderr().lock().write_all(&data)?,
            Ok(Some(ExecFrame::Exit(code))) => return Ok(Ok(code)),
            Ok(Some(ExecFrame::Error(text))) => return Ok(Err(text)),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Err("podling closed the connection before the command ended".to_owned())),
            Err(error) => return Ok(Err(format!("the connection to podling broke off: {error}"))),
        }
    }
}

/// Runs on a thread of its own: a read of a terminal cannot be called off, and must not keep the
/// program from ending.
fn read_stdin(frames: &mpsc::Sender<ExecFrame>) {
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; CHUNK];
    loop {
        let frame = match stdin.read(&mut buffer) {
            Ok(0) | Err(_) => ExecFrame::StdinEnd,
            Ok(n) => ExecFrame::Stdin(Bytes::copy_from_slice(&buffer[..n])),
        };
        let end = frame == ExecFrame::StdinEnd;
        if frames.blocking_send(frame).is_err() || end {
            return;
        }
    }
}

/// Sends the terminal's size whenever it changes.
fn watch_size(frames: mpsc::Sender<ExecFrame>) {
    let Ok(mut signals) = signal_hook::iterator::Signals::new([signal_hook::consts::SIGWINCH]) else {
        return;
    };
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let Some(size) = terminal_size() else { continue };
            if frames.blocking_send(ExecFrame::Resize(size)).is_err() {
                return;
            }
        }
    });
}

fn terminal_size() -> Option<TerminalSize> {
    let size =
        tcgetwinsize(std::io::stdout().as_fd()).or_else(|_| tcgetwinsize(std::io::stdin().as_fd())).ok()?;
    (size.ws_col > 0).then_some(TerminalSize { columns: size.ws_col, rows: size.ws_row })
}

/// The terminal in raw mode, so that keys such as Ctrl-C reach the command; as before when dropped.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> Result<Self, CliError> {
        let stdin = std::io::stdin();
        let failed = |e| CliError::Failed(format!("cannot set the terminal to raw mode: {e}"));
        let before = tcgetattr(stdin.as_fd()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin.as_fd(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // There is no better place to report a failure to than this very terminal.
        let _ = tcsetattr(std::io::stdin().as_fd(), OptionalActions::Now, &self.before);
    }
}
