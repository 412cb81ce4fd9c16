//! Errors, and how they look over HTTP.

use std::borrow::Cow;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidegate_core::{Diagnostic, ErrorClass};
use tidegate_fabric::QueryError;

/// The API cannot answer or cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// A parameter or the body is not what the path takes.
    #[error("{detail}")]
    Invalid {
        /// What is wrong, with the parameter's name.
        detail: String,
    },
    /// The search system cannot answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// An answer cannot be written as JSON.
    #[error("the answer cannot be written as json")]
    Encode(#[from] serde_json::Error),
    /// The listener failed.
    #[error("the http server stopped")]
    Serve(#[source] std::io::Error),
}

impl Diagnostic for ApiError {
    fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "TG-API-001",
            Self::Query(error) => error.code(),
            Self::Encode(_) => "TG-API-002",
            Self::Serve(_) => "TG-API-003",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } | Self::Serve(_) => ErrorClass::Operator,
            Self::Query(error) => error.class(),
            Self::Encode(_) => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Invalid { .. } => Some("docs/errors/TG-API-001.md lists the parameters".into()),
            Self::Query(error) => error.hint(),
            Self::Encode(_) => None,
            Self::Serve(_) => Some("check the address and the limit on open files".into()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "error": { "code": self.code(), "message": message(&self), "hint": self.hint() }
        });
        (status(&self), Json(body)).into_response()
    }
}

/// What happened, followed by the causes.
fn message(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn status(error: &ApiError) -> StatusCode {
    match error {
        ApiError::Query(QueryError::CollectionNotFound(_)) => StatusCode::NOT_FOUND,
        ApiError::Query(QueryError::CollectionDropped(_)) => StatusCode::GONE,
        ApiError::Query(QueryError::Read(_)) | ApiError::Encode(_) | ApiError::Serve(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        ApiError::Query(error) if error.class() == ErrorClass::Wait => StatusCode::SERVICE_UNAVAILABLE,
        ApiError::Query(_) | ApiError::Invalid { .. } => StatusCode::BAD_REQUEST,
    }
}
