//! The HTTP API and the page: search, freshness and live numbers.
//!
//! | path | answer |
//! | --- | --- |
//! | `GET /` | the page |
//! | `GET /api/v1/search` | a search, from query parameters ([`params::SearchParams`]) |
//! | `POST /api/v1/search` | a search, from a JSON [`tidegate_fabric::query::request::SearchRequest`] |
//! | `GET /api/v1/collections/{collection}/documents/{id}` | one document |
//! | `GET /api/v1/status` | collections, generations, partitions, progress |
//! | `GET /api/v1/stream` | the same, twice a second, as server-sent events |
//!
//! Integers that JavaScript cannot hold, which includes every timestamp, are strings (see [`json`]). An error
//! is `{"error": {"code", "message", "hint"}}` with a matching HTTP status.
//!
//! *Invariant:* an answer always carries its `safe_ts`; nothing here holds state of its own.

mod assets;
mod failure;
pub mod json;
pub mod params;
pub mod rate;
mod routes;
mod stream;

use tidegate_fabric::QueryHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use failure::ApiError;
pub use routes::router;

/// What the API answers from.
#[derive(Clone)]
pub struct ApiOptions {
    /// Where searches are answered.
    pub query: QueryHandle,
    /// Ends the server and every open stream.
    pub stop: CancellationToken,
}

/// Serves on `listener` until [`ApiOptions::stop`] is cancelled; open requests are finished first.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, options: ApiOptions) -> Result<(), ApiError> {
    let stop = options.stop.clone();
    let server = axum::serve(listener, router(options));
    server.with_graceful_shutdown(stop.cancelled_owned()).await.map_err(ApiError::Serve)
}
