//! Errors as answers: a status, and `{"error": "..", "kind": ".."}`.
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forever_runtime::{Error, ErrorKind};
use serde_json::json;

/// Why a request is not carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    kind: &'static str,
    why: String,
}

impl Failure {
    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Failure { status: StatusCode::BAD_REQUEST, kind: "bad_request", why: why.into() }
    }

    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Failure { status: StatusCode::FORBIDDEN, kind: "forbidden", why: why.into() }
    }

    pub(crate) fn unauthorized() -> Self {
        Failure { status: StatusCode::UNAUTHORIZED, kind: "unauthorized", why: "this needs credentials".to_owned() }
    }

    pub(crate) fn not_found(why: impl Into<String>) -> Self {
        Failure { status: StatusCode::NOT_FOUND, kind: "not_found", why: why.into() }
    }

    pub(crate) fn busy(why: impl Into<String>) -> Self {
        Failure { status: StatusCode::SERVICE_UNAVAILABLE, kind: "busy", why: why.into() }
    }

    pub(crate) fn into_response_now(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.why, "kind": self.kind }))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let basic = axum::http::HeaderValue::from_static("Basic realm=\"forever\"");
            response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, basic);
        }
        response
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.into_response_now()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, kind) = match error.kind() {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            ErrorKind::InvalidState => (StatusCode::CONFLICT, "invalid_state"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "conflict"),
            ErrorKind::TopicClosed => (StatusCode::CONFLICT, "topic_closed"),
            ErrorKind::Value => (StatusCode::UNPROCESSABLE_ENTITY, "value"),
            ErrorKind::NotRegistered => (StatusCode::CONFLICT, "not_registered"),
            ErrorKind::Setup => (StatusCode::BAD_REQUEST, "setup"),
            ErrorKind::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
            ErrorKind::OutcomeUnknown => (StatusCode::INTERNAL_SERVER_ERROR, "outcome_unknown"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "store"),
        };
        Failure { status, kind, why: causes(&error) }
    }
}

/// An error with its causes. One that repeats the text of its cause says it once.
pub(crate) fn causes(error: &Error) -> String {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !why.ends_with(&cause_text) {
            why = format!("{why}: {cause_text}");
        }
        source = cause.source();
    }
    why
}

pub(crate) async fn not_found() -> Failure {
    Failure { kind: "no_such_path", ..Failure::not_found("there is nothing at this path") }
}

pub(crate) async fn wrong_method() -> Failure {
    Failure { status: StatusCode::METHOD_NOT_ALLOWED, kind: "method", why: "this path has another method".to_owned() }
}
