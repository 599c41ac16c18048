//! Reads paths and queries: what is wrong with one is said as any other [`Failure`].
use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Parts of the path.
pub(crate) struct Path<T>(pub(crate) T);

/// The query.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = extract::Path::from_request_parts(parts, state).await;
        read.map(|extract::Path(read)| Path(read)).map_err(|why| Failure::bad(format!("this path cannot be read: {}", why.body_text())))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = extract::Query::from_request_parts(parts, state).await;
        read.map(|extract::Query(read)| Query(read)).map_err(|why| Failure::bad(why.body_text()))
    }
}
