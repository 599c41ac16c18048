//! The page and its files, as they are in this crate's `src/page`: plain modules, built by nothing.
use axum::extract::{OriginalUri, Path};
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use crate::failure::Failure;

const INDEX: &str = include_str!("page/index.html");

/// Files by name, with their types.
const FILES: [(&str, &str, &str); 13] = [
    ("app.css", "text/css", include_str!("page/app.css")),
    ("app.js", "text/javascript", include_str!("page/app.js")),
    ("dom.js", "text/javascript", include_str!("page/dom.js")),
    ("format.js", "text/javascript", include_str!("page/format.js")),
    ("source.js", "text/javascript", include_str!("page/source.js")),
    ("actions.js", "text/javascript", include_str!("page/actions.js")),
    ("links.js", "text/javascript", include_str!("page/links.js")),
    ("troubles.js", "text/javascript", include_str!("page/troubles.js")),
    ("views.js", "text/javascript", include_str!("page/views.js")),
    ("chats.js", "text/javascript", include_str!("page/chats.js")),
    ("layout.js", "text/javascript", include_str!("page/layout.js")),
    ("fiber.js", "text/javascript", include_str!("page/fiber.js")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// The page. Its files are named relative to where it is nested.
pub(crate) async fn index(OriginalUri(uri): OriginalUri) -> Html<String> {
    let path = uri.path().trim_end_matches('/');
    let base: String = path.chars().filter(|c| c.is_ascii_alphanumeric() || "/-_.~%".contains(*c)).collect();
    Html(INDEX.replace("{{base}}", &format!("{base}/")))
}

pub(crate) async fn asset(Path(file): Path<String>) -> Response {
    match FILES.iter().find(|(name, ..)| *name == file) {
        Some((_, kind, text)) => ([(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))], *text).into_response(),
        None => Failure::not_found("there is no such file").into_response(),
    }
}
