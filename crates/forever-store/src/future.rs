//! The boxed future of traits that are used as objects.
use std::future::Future;
use std::pin::Pin;

/// A boxed future that is `Send`: what an `async fn` of a trait object returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
