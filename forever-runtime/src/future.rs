//! The boxed future of traits that are used as objects.
pub(crate) use forever_store::BoxFuture;
