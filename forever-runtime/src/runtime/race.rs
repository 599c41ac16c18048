//! A future that ends early if another one is ready first.
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// The value of `first`, unless `second` is ready before it.
pub fn race<F: Future, S: Future<Output = ()>>(first: F, second: S) -> Race<F, S> {
    Race { first, second }
}

pin_project! {
    /// The future of [`race`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Race<F, S> {
        #[pin]
        first: F,
        #[pin]
        second: S,
    }
}

impl<F: Future, S: Future<Output = ()>> Future for Race<F, S> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        if let Poll::Ready(value) = this.first.poll(cx) {
            return Poll::Ready(Some(value));
        }
        this.second.poll(cx).map(|()| None)
    }
}
