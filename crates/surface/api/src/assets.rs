//! The page's files, compiled in, so that it needs no network and no folder beside the binary.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::{Router, routing::get};

/// Nothing from elsewhere, nothing inline: a document's text cannot become code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

macro_rules! asset {
    ($file:literal, $kind:literal) => {
        get(|| async { page($kind, include_str!(concat!("../assets/", $file))) })
    };
}

/// Routes of the page and its parts.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/", asset!("index.html", "text/html; charset=utf-8"))
        .route("/style.css", asset!("style.css", "text/css; charset=utf-8"))
        .route("/app.js", asset!("app.js", "text/javascript; charset=utf-8"))
        .route("/dom.js", asset!("dom.js", "text/javascript; charset=utf-8"))
        .route("/hits.js", asset!("hits.js", "text/javascript; charset=utf-8"))
        .route("/pipeline.js", asset!("pipeline.js", "text/javascript; charset=utf-8"))
        .route("/icon.svg", asset!("icon.svg", "image/svg+xml"))
}

fn page(kind: &'static str, body: &'static str) -> impl IntoResponse {
    let header = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    let headers = [
        header(CONTENT_TYPE, kind),
        header(CONTENT_SECURITY_POLICY, POLICY),
        header(X_CONTENT_TYPE_OPTIONS, "nosniff"),
        header(REFERRER_POLICY, "no-referrer"),
        header(CACHE_CONTROL, "no-cache"),
    ];
    (headers, body)
}
