//! A connection on which nothing is heard before something was said.
//!
//! Small servers (`printf … | nc -l`) answer before they are asked. A strict client takes that for garbage from a
//! peer that it has no business with; here it is the answer to what is about to be asked.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Holds reads back until the first write.
pub struct SpeakFirst<S> {
    stream: S,
    spoke: bool,
    listener: Option<Waker>,
}

impl<S> SpeakFirst<S> {
    /// Around a connection.
    pub fn new(stream: S) -> Self {
        Self { stream, spoke: false, listener: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SpeakFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.spoke {
            self.listener = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SpeakFirst<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.spoke = true;
        if let Some(listener) = self.listener.take() {
            listener.wake();
        }
        Poll::Ready(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn an_answer_that_comes_too_early_is_heard_after_the_question() {
        let (ours, mut theirs) = duplex(64);
        theirs.write_all(b"answer").await.expect("there is room");
        let mut ours = SpeakFirst::new(ours);
        let mut answer = [0; 6];
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), ours.read(&mut answer)).await;
        assert!(early.is_err(), "nothing is heard yet");
        ours.write_all(b"question").await.expect("there is room");
        ours.read_exact(&mut answer).await.expect("it waits there");
        assert_eq!(&answer, b"answer");
    }
}
