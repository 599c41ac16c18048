//! What browsers may do with responses: pages of other origins that are allowed may read them
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>), and none is shown as a page.
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::auth::Page;
use super::http::{Failed, Served};

/// `Access-Control-Max-Age` in seconds; no browser keeps it longer than a day.
const REMEMBERED: HeaderValue = HeaderValue::from_static("86400");

/// What clients have written is in responses, and no browser is to take it for a page.
const DATA: [(HeaderName, HeaderValue); 2] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
];

/// Adds the headers to every response, and answers preflight requests.
pub(super) async fn tell(State(served): State<Arc<Served>>, request: Request, next: Next) -> Response {
    let mut answer = answer(&served, request, next).await;
    answer.headers_mut().extend(DATA);
    answer
}

async fn answer(served: &Served, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let Some(origin) = headers.get(header::ORIGIN).cloned() else { return next.run(request).await };
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    let page = served.auth.page(headers, peer);
    let asks_first = request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let page = match page {
        Ok(page) => page,
        Err(refused) if asks_first => return Failed::from(refused).into_response(),
        // The request is refused with a reason.
        Err(_) => return next.run(request).await,
    };
    let mut answer = if asks_first {
        let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let may = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE")),
            (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED),
        ];
        let wanted = wanted.map(|wanted| (header::ACCESS_CONTROL_ALLOW_HEADERS, wanted));
        let mut answer = StatusCode::NO_CONTENT.into_response();
        answer.headers_mut().extend(may.into_iter().chain(wanted));
        answer
    } else {
        next.run(request).await
    };
    answer.headers_mut().extend(of_page(page, origin));
    vary(answer.headers_mut());
    answer
}

fn of_page(page: Page, origin: HeaderValue) -> Vec<(HeaderName, HeaderValue)> {
    match page {
        Page::Own => Vec::new(),
        Page::Named => vec![
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
            (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")),
        ],
        // `*` allows all pages, but without the credentials of the browser.
        Page::Any => vec![(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))],
    }
}

/// Marks the response as dependent on the origin.
fn vary(headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}
