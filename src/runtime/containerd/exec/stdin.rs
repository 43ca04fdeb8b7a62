//! The input of a process in a container.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

use super::Remote;

/// How long to wait for the shim to open its end of the input.
const STDIN_OPEN: Duration = Duration::from_secs(5);

/// The input of an exec process. Shutting it down or dropping it is end of input.
#[derive(Debug)]
pub struct ExecStdin {
    pub(super) pipe: Option<pipe::Sender>,
    pub(super) remote: Arc<Remote>,
}

impl ExecStdin {
    /// Closes our end; the shim holds another open until it is told.
    fn close(&mut self) {
        let (Some(_), Ok(runtime)) = (self.pipe.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let remote = self.remote.clone();
        runtime.spawn(async move {
            if let Err(e) = remote.close_io().await {
                // It has ended by itself.
                tracing::debug!("{e}");
            }
        });
    }

    fn open(&mut self) -> io::Result<Pin<&mut pipe::Sender>> {
        self.pipe.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for ExecStdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.open()?.poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for ExecStdin {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the writing end. It can be opened only once the shim has the reading end, which it opens in the
/// background.
pub(super) async fn open_stdin(path: &Path) -> io::Result<pipe::Sender> {
    let deadline = tokio::time::Instant::now() + STDIN_OPEN;
    loop {
        match pipe::OpenOptions::new().open_sender(path) {
            Err(e)
                if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
                    && tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            other => return other,
        }
    }
}
