//! The paths and what answers them.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::Value;
use tidegate_fabric::query::request::{ReadOptions, SearchRequest};

use crate::params::SearchParams;
use crate::{ApiError, ApiOptions, assets, json, stream};

type Answer = Result<Json<Value>, ApiError>;

/// All routes. Useful on its own where the program has a server already.
pub fn router(options: ApiOptions) -> Router {
    let api = Router::new()
        .route("/search", get(search_by_parameters).post(search_by_body))
        .route("/collections/{collection}/documents/{id}", get(document))
        .route("/status", get(status))
        .route("/stream", get(stream::follow))
        .with_state(options);
    Router::new().nest("/api/v1", api).merge(assets::router())
}

async fn search_by_parameters(
    State(api): State<ApiOptions>,
    params: Result<Query<SearchParams>, QueryRejection>,
) -> Answer {
    let Query(params) = params.map_err(|rejection| invalid(rejection.body_text()))?;
    search(&api, params.into_request()?).await
}

async fn search_by_body(
    State(api): State<ApiOptions>,
    body: Result<Json<SearchRequest>, JsonRejection>,
) -> Answer {
    let Json(request) = body.map_err(|rejection| invalid(rejection.body_text()))?;
    search(&api, request).await
}

async fn search(api: &ApiOptions, request: SearchRequest) -> Answer {
    answer(&api.query.search(request).await?)
}

async fn document(State(api): State<ApiOptions>, path: Result<Path<(String, u64)>, PathRejection>) -> Answer {
    let Path((collection, id)) = path.map_err(|rejection| invalid(rejection.body_text()))?;
    answer(&api.query.get(&collection, id, ReadOptions::default()).await?)
}

async fn status(State(api): State<ApiOptions>) -> Answer {
    answer(&api.query.status())
}

fn answer<T: Serialize>(body: &T) -> Answer {
    Ok(Json(json::exact(body)?))
}

fn invalid(detail: String) -> ApiError {
    ApiError::Invalid { detail }
}
